"""What has served is forgotten: keys, leases and half-sent files; what still serves is not."""

from datetime import timedelta

import pytest
from django.core.files.storage import default_storage

from sandbox_supervisor.protocol.messages import DeliveryState
from tasks_app.models import Archive, Delivery, IdempotencyRecord, Lease
from tasks_app.models.outcome import ArchiveKind, ArchiveState
from tasks_app.services import archive, leases, leftovers, observation, sweeps, uploads
from tests.tasks.lifecycle.house import START

TTL = timedelta(minutes=1)
DIGEST = "sha256:" + "d" * 64


def lose(house, task) -> None:
    house.world.kill(task.sandbox_name)
    observation.observe(task.pk)


class TestKeys:
    @pytest.mark.parametrize(("age", "replayed"), [(timedelta(0), True), (timedelta(seconds=1), False)])
    def test_a_key_is_remembered_for_a_week(self, house, age, replayed):
        first = house.create(key="once")
        house.clock.moment += leftovers.KEY_LIFE + age
        sweeps.run("leftovers")
        again = house.create(key="once")
        assert (again.replayed, again.task.pk == first.task.pk) == (replayed, replayed)

    def test_the_task_of_a_forgotten_key_stays(self, house):
        task = house.create(key="once").task
        house.clock.moment += leftovers.KEY_LIFE * 2
        sweeps.run("leftovers")
        assert not IdempotencyRecord.objects.exists()
        assert house.again(task)


class TestLeases:
    def test_a_lease_that_nobody_holds_is_forgotten(self, house):
        house.starting()
        leases.take("dead", now=house.clock(), ttl=TTL)
        house.clock.advance(minutes=2)
        leftovers.sweep()
        assert not Lease.objects.filter(ticked_at__isnull=True).exists()

    def test_a_lease_that_is_held_stays_with_its_holder(self, house):
        token = leases.take("mine", now=house.clock(), ttl=TTL) or ""
        leftovers.sweep()
        assert leases.holds("mine", token, now=house.clock())

    def test_what_a_sweep_remembers_is_never_forgotten(self, house):
        house.sweep_contact()
        sweeps.run("outbox")
        house.clock.advance(days=400)
        leftovers.sweep()
        assert {"sweep:contact", "swept:outbox"} <= set(Lease.objects.values_list("name", flat=True))

    def test_a_forgotten_lease_can_be_taken_by_one_again(self, house):
        token = leases.take("x", now=START, ttl=TTL) or ""
        leases.release("x", token)
        leftovers.sweep()
        assert leases.take("x", now=START, ttl=TTL)
        assert leases.take("x", now=START, ttl=TTL) is None


class TestUploads:
    def half_sent(self, house, task) -> Archive:
        announced = archive.Announced(kind=ArchiveKind.ARTEFACT, digest=DIGEST, size=10)
        archive.take(task, announced, offset=0, data=b"half")
        return Archive.objects.get(task=task)

    def half_delivered(self, house, task) -> Delivery:
        row = Delivery.objects.create(
            task=task,
            node="deliver",
            generation=1,
            key="k",
            branch=task.task_branch,
            base_commit=task.base_commit,
            commit="c" * 40,
            bundle_size=10,
            bundle_digest=DIGEST,
            created_at=house.clock(),
        )
        uploads.keep_chunk(uploads.folder(row.pk), 0, b"half")
        return row

    def test_what_a_lost_sandbox_had_half_sent_is_given_up_and_its_bytes_removed(self, house):
        task = house.running()
        file, delivery = self.half_sent(house, task), self.half_delivered(house, task)
        lose(house, task)
        leftovers.sweep()
        file.refresh_from_db()
        delivery.refresh_from_db()
        assert file.state == ArchiveState.LOST
        assert (delivery.state, delivery.code) == (DeliveryState.REFUSED, "task_ended")
        assert not any(default_storage.exists(uploads.folder(row.pk)) for row in (file, delivery))

    def test_what_a_sandbox_that_stands_is_sending_stays(self, house):
        ended, running = house.ended(task_branch="a"), house.running(task_branch="b")
        rows: list[Archive | Delivery] = [self.half_sent(house, task) for task in (ended, running)]
        rows.append(self.half_delivered(house, running))
        leftovers.sweep()
        for row in rows:
            row.refresh_from_db()
            assert row.state in {ArchiveState.RECEIVING, DeliveryState.RECEIVED}
            assert default_storage.exists(uploads.folder(row.pk))
