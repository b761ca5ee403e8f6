// Follows a stream and prints every callback as one line of JSON; takes commands (close, wake) on standard input.
import { createInterface } from "node:readline";
import { createStream } from "../../static/js/stream.js";

const [url, options] = [process.argv[2], JSON.parse(process.argv[3] ?? "{}")];
const say = (what, value) => process.stdout.write(`${JSON.stringify({ what, ...value })}\n`);
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const headers = options.headers;

const stream = createStream({
  url,
  since: options.since ?? null,
  filter: options.filter ?? null,
  credit: options.credit,
  timing: { silence: 20_000, answer: 1_000, first: 20, longest: 100, steady: 10_000, ...options.timing },
  open: headers ? (address, protocol) => new WebSocket(address, { protocols: [protocol], headers }) : undefined,
  onSnapshot: (state, about) => say("snapshot", { state, about }),
  onEvents: async (events, about) => {
    if (options.slow) {
      say("showing", {});
      await pause(options.slow);
    }
    if (options.broken && events.some((event) => event.seq === options.broken)) {
      options.broken = 0;
      throw new Error("cannot show this");
    }
    say("events", { seqs: events.map((event) => event.seq), upto: about.upto, merged: about.merged });
  },
  onState: (state) => say("state", state),
  onTask: () => say("task", {}),
});

for await (const line of createInterface({ input: process.stdin })) {
  if (line === "wake") stream.wake();
  if (line === "close") {
    stream.close();
    break;
  }
}
stream.close();
