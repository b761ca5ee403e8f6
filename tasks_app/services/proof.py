"""What the control plane's own rows prove: that a delivery happened, and that the archive has arrived."""

from sandbox_supervisor.protocol.messages import DeliveryProof, DeliveryState
from sandbox_supervisor.protocol.states import NodeState
from tasks_app.kernel import Proof
from tasks_app.models import Delivery, Task, TaskContact, TaskSnapshot
from tasks_app.states import Presence

NOT_TAKEN = frozenset({NodeState.SKIPPED})


def delivery_proof(task: Task, claim: DeliveryProof | None) -> Proof:
    """Compare what the supervisor claims with the delivery row. A skipped delivery node asks for no proof."""
    if not task.requires_delivery:
        return Proof.NOT_ASKED
    if claim is None:
        return Proof.MISSING
    if claim.state in NOT_TAKEN:
        return Proof.NOT_ASKED
    row = Delivery.objects.filter(task=task, node=claim.node, generation=claim.generation).first()
    if row is None:
        return Proof.MISSING
    if claim.nothing:
        return Proof.NOTHING if row.state == DeliveryState.NOTHING else Proof.MISSING
    return Proof.HOLDS if _delivered(row, claim.commit) else Proof.MISSING


def _delivered(row: Delivery, commit: str | None) -> bool:
    told = row.change_request is not None or not row.wants_change_request
    return row.state == DeliveryState.DELIVERED and row.commit == commit and told


def archive_settled(task: Task, contact: TaskContact) -> bool:
    """Say whether the final snapshot of this round is stored, or can never come."""
    if not contact.epoch or task.presence != Presence.PRESENT:
        return True
    return TaskSnapshot.objects.filter(task=task, round=task.round).exists()
