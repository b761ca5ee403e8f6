// The event stream of one task: snapshot or resume, apply, acknowledge; it comes back after every cut, where it stopped.
// @ts-check

/** @typedef {{seq: number, epoch: string, at: string, kind: string, node: string | null, generation: number | null, attempt: string | null, data: Record<string, any>}} StreamEvent */
/** @typedef {{epoch: string, seq: number}} Position */
/** @typedef {{nodes?: string[], attempts?: string[], kinds?: string[]}} Filter */
/** @typedef {"connecting" | "live" | "waiting" | "unreachable" | "reconnecting" | "closed"} StateWord */
/** @typedef {{state: StateWord, detail: string, code: number, seq: number}} State */
/** @typedef {{first: number, last: number, events: number, dropped_bytes: number}} Merged */
/**
 * `onSnapshot` gets the whole state; what was shown before is no longer true. `onEvents` gets each event once, in order of
 * seq; both may return a promise, and nothing more is asked for until it is settled. `since` resumes at a position.
 * @typedef {object} Options
 * @property {string} url
 * @property {Position | null} [since]
 * @property {Filter | null} [filter]
 * @property {{events: number, bytes: number}} [credit]
 * @property {(state: Record<string, any>, about: Position & {reason: string}) => unknown} onSnapshot
 * @property {(events: StreamEvent[], about: {upto: number, merged: Merged[]}) => unknown} onEvents
 * @property {(state: State) => unknown} [onState]
 * @property {() => unknown} [onTask] the task's record changed: fetch it again
 * @property {(url: string, protocol: string) => WebSocket} [open]
 * @property {{silence: number, answer: number, first: number, longest: number, steady: number}} [timing] milliseconds
 */

const PROTOCOL = "console.v1";
/** Codes after which trying again makes no sense: auth, scope, not found, reclaimed, no sandbox. */
const FINAL = new Map([[4401, "signed out"], [4403, "not allowed"], [4404, "not found"], [4410, "reclaimed"], [4503, "the sandbox is gone"]]);
const MISUNDERSTOOD = 4400;
const CROWDED = 4429;
const TIMING = { silence: 40_000, answer: 5_000, first: 500, longest: 15_000, steady: 10_000 };
const LISTS = ["nodes", "attempts", "requests"];

/** Follow a task until `close` is called. @param {Options} options */
export function createStream(options) {
  const stream = new Stream(options);
  stream.connect();
  return {
    close: () => stream.end("closed by the page", 1000),
    wake: () => stream.wake(),
    get position() {
      return stream.position;
    },
  };
}

class Stream {
  /** @param {Options} options */
  constructor(options) {
    this.options = options;
    this.timing = { ...TIMING, ...options.timing };
    /** @type {Position | null} what has been applied */
    this.position = options.since ?? null;
    /** @type {WebSocket | null} */
    this.socket = null;
    /** @type {Promise<unknown>} */
    this.work = Promise.resolve();
    this.asked = false; // a subscribe is out; what comes before its answer belongs to the one before
    /** @type {any[]} */
    this.parts = [];
    this.behind = 0; // heartbeats in a row that knew more than was sent
    this.pause = this.timing.first;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.watchdog = undefined;
    /** @type {State} */
    this.state = { state: "connecting", detail: "", code: 0, seq: 0 };
    this.isOver = false;
    this.onWake = () => globalThis.document?.visibilityState !== "hidden" && this.wake();
    for (const name of ["online", "pageshow"]) globalThis.addEventListener?.(name, this.onWake);
    globalThis.document?.addEventListener("visibilitychange", this.onWake);
  }

  connect() {
    if (this.isOver) return;
    const open = this.options.open ?? ((url, protocol) => new WebSocket(url, protocol));
    const socket = (this.socket = open(this.options.url, PROTOCOL));
    const opened = Date.now();
    this.asked = false;
    socket.onopen = () => this.later(socket, () => this.subscribe());
    socket.onmessage = (message) => {
      if (socket === this.socket) this.guard(this.timing.silence);
      this.later(socket, () => this.take(socket, JSON.parse(message.data)));
    };
    socket.onclose = (close) => socket === this.socket && this.lost(close.code, close.reason, Date.now() - opened);
    this.guard(this.timing.silence);
  }

  /** Do something after all that was begun before, if the connection is still the same. @param {WebSocket} socket @param {() => unknown} what */
  later(socket, what) {
    this.work = this.work.then(() => (socket === this.socket ? what() : undefined)).catch((error) => this.fail(error));
  }

  /** Ask for everything after the position, or for a snapshot when there is none. */
  subscribe() {
    this.asked = true;
    this.parts = [];
    this.behind = 0;
    this.send(this.socket, { type: "subscribe", since: this.position, filter: this.options.filter ?? null, credit: this.options.credit ?? { events: 256, bytes: 1024 * 1024 } });
  }

  /** @param {WebSocket} socket @param {any} frame */
  async take(socket, frame) {
    switch (frame.type) {
      case "resume":
        this.answered();
        break;
      case "snapshot":
        await this.takeSnapshot(socket, frame);
        break;
      case "events":
        if (!this.asked) await this.takeEvents(socket, frame);
        break;
      case "heartbeat":
        if (!this.asked) this.compare(frame);
        break;
      case "health":
        if (frame.state !== "reachable") this.tell(frame.state, frame.detail);
        break;
      case "task":
        this.options.onTask?.();
        break;
      default: // an error is followed by its close; a type of a later version is not for this page
    }
  }

  /** @param {WebSocket} socket @param {any} frame */
  async takeSnapshot(socket, frame) {
    if (frame.part === 1) this.parts = [];
    this.parts.push(frame);
    if (frame.part === frame.parts && this.parts.length === frame.parts) {
      const whole = { ...this.parts[0].state };
      for (const name of LISTS) whole[name] = this.parts.flatMap((part) => part.state[name] ?? []);
      await this.options.onSnapshot(whole, { epoch: frame.epoch, seq: frame.seq, reason: frame.reason });
      this.position = { epoch: frame.epoch, seq: frame.seq };
      if (socket === this.socket) this.answered();
    }
    this.send(socket, { type: "ack", seq: frame.seq, part: frame.part });
  }

  /** @param {WebSocket} socket @param {any} frame */
  async takeEvents(socket, frame) {
    if (!this.position || frame.epoch !== this.position.epoch || frame.prev !== this.position.seq) {
      this.position = null; // a gap or another log: only a fresh snapshot is true
      this.subscribe();
      return;
    }
    if (frame.events.length) await this.options.onEvents(frame.events, { upto: frame.upto, merged: frame.merged ?? [] });
    this.position = { epoch: frame.epoch, seq: frame.upto };
    this.behind = 0;
    this.send(socket, { type: "ack", seq: frame.upto });
    if (socket === this.socket) this.tell("live", "");
  }

  /** Nothing missing goes unnoticed: two heartbeats that know of more than was sent mean a dead stream. @param {any} frame */
  compare(frame) {
    const isBehind = this.position !== null && frame.head > this.position.seq;
    this.behind = isBehind ? this.behind + 1 : 0;
    if (this.behind >= 2 && !this.options.filter) this.drop("events are missing");
  }

  answered() {
    this.asked = false;
    this.tell("live", "");
  }

  // --- the connection ---

  /** After sleep the head is compared first: the answer to a subscribe names it, and its absence tells a dead socket. */
  wake() {
    const socket = this.socket;
    if (this.isOver) return;
    if (socket?.readyState === 1) {
      this.guard(this.timing.answer);
      this.later(socket, () => this.asked || this.subscribe());
    } else if (this.state.state === "reconnecting") {
      clearTimeout(this.timer);
      this.connect();
    }
  }

  /** To the connection that it is for; an ack of an earlier one means nothing to the next. @param {WebSocket | null} socket @param {object} frame */
  send(socket, frame) {
    if (socket === this.socket && socket?.readyState === 1) socket.send(JSON.stringify(frame));
  }

  /** Give the connection so long to show a sign of life. @param {number} milliseconds */
  guard(milliseconds) {
    clearTimeout(this.watchdog);
    this.watchdog = setTimeout(() => this.drop("nothing was heard"), milliseconds);
  }

  /** A view that cannot apply an event is a fault of ours; a fresh snapshot may mend it. @param {unknown} error */
  fail(error) {
    console.error("stream", error);
    this.position = null;
    this.drop("an event could not be shown");
  }

  /** @param {string} why */
  drop(why) {
    const socket = this.socket;
    this.socket = null;
    socket?.close();
    this.lost(1006, why, 0);
  }

  /** Come back, unless it makes no sense; an ordinary close (1000) is no end. @param {number} code @param {string} why @param {number} lasted */
  lost(code, why, lasted) {
    clearTimeout(this.watchdog);
    if (this.isOver) return;
    const end = FINAL.get(code);
    if (end) return this.end(end, code);
    if (code === MISUNDERSTOOD) this.position = null;
    if (code === CROWDED) this.pause = this.timing.longest;
    if (lasted > this.timing.steady) this.pause = this.timing.first;
    this.socket = null;
    this.tell("reconnecting", why, code);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.connect(), this.pause * (0.5 + Math.random() / 2));
    this.pause = Math.min(this.pause * 2, this.timing.longest);
  }

  /** @param {string} why @param {number} code */
  end(why, code) {
    if (this.isOver) return;
    this.isOver = true;
    clearTimeout(this.timer);
    clearTimeout(this.watchdog);
    for (const name of ["online", "pageshow"]) globalThis.removeEventListener?.(name, this.onWake);
    globalThis.document?.removeEventListener("visibilitychange", this.onWake);
    const socket = this.socket;
    this.socket = null;
    socket?.close();
    this.tell("closed", why, code);
  }

  /** @param {StateWord} state @param {string} detail */
  tell(state, detail, code = 0) {
    const seq = this.position?.seq ?? 0;
    if (state === this.state.state && detail === this.state.detail && seq === this.state.seq) return;
    this.state = { state, detail, code, seq };
    this.options.onState?.(this.state);
  }
}
