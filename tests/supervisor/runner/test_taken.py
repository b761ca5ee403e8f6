"""What the runner says that its attempts take."""

import asyncio

from tests.supervisor.runner.stage import ATTEMPT, GIVE_UP, Stage, shell

MIB = 1024 * 1024
TAKE = """
head -c 8388608 /dev/urandom > big
exec python3 -c "import time; held = b'x' * (40 << 20); open('held', 'w').close(); time.sleep(600)"
"""


async def test_disk_and_memory_of_what_runs_below_it_are_counted(on_stage: Stage) -> None:
    before = await on_stage.link.taken()
    await on_stage.begin(shell(TAKE))
    async with asyncio.timeout(GIVE_UP):
        while not (on_stage.attempt().tree / "held").exists():  # noqa: ASYNC110  # another process makes it
            await asyncio.sleep(0.02)
    during = await on_stage.link.taken()
    assert 8 * MIB <= during.disk - before.disk < 16 * MIB
    assert 40 * MIB <= during.memory - before.memory < 200 * MIB
    await on_stage.link.stop(ATTEMPT, kill=True)
    after = await on_stage.link.taken()
    assert after.disk >= during.disk
    assert after.memory < during.memory - 39 * MIB
