"""The side effects that the kernel may want; the engine carries them out from the outbox, after the commit."""

from enum import StrEnum


class EffectKind(StrEnum):
    PREPARE = "prepare"  # subject attempt: compute the base, make the tree → Prepared | Failed(workspace)
    SPAWN = "spawn"  # subject attempt: start the shim → Spawned | Failed(infra)
    GO = "go"  # subject attempt: let the shim exec, follow the session → Asked, Progress, Succeeded | Failed
    STOP = "stop"  # subject attempt, data {how: cancel|kill, reason}: escalate until the tree is empty → Ended
    REPLY = "reply"  # subject request, data {attempt, answer}: hand a person's answer to the session
    MESSAGE = "message"  # subject command id, data {attempt, text}: give the session one more prompt
    DELIVER = "deliver"  # subject attempt: bundle, hand to the control plane, wait → Succeeded | Failed
    MERGE = "merge"  # subject attempt of a merge node: merge the needs → Succeeded | Failed | (agent) Prepared
    UPLOAD = "upload"  # subject artefact digest: content-addressed upload to the control plane → EffectDone
    ARCHIVE = "archive"  # subject round: final snapshot to the control plane → EffectDone
