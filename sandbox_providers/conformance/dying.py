"""A worker that dies in the middle of a create: what to do comes as JSON on standard input."""

import os
import sys
from hashlib import sha256
from pathlib import Path

from sandbox_providers.contract import SandboxSpec, Secret
from sandbox_providers.local.provider import LocalProvider
from sandbox_providers.registry import ProviderSettings
from sandbox_supervisor.protocol import codec

DIED = 9


def main() -> int:
    """Create; end at once, without any farewell, after as many steps as were asked for."""
    asked = codec.decode(sys.stdin.buffer.read(), dict[str, object])
    left = [int(str(asked["step"]))]

    def count_down(_step: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            os._exit(DIED)

    content = str(asked["specification"]).encode()
    settings = ProviderSettings(
        state_dir=Path(str(asked["state"])), image_digest=str(asked["image"]), isolation=str(asked["isolation"])
    )
    spec = SandboxSpec(
        key=str(asked["key"]),
        name=str(asked["name"]),
        task_id=str(asked["key"]),
        digest="sha256:" + sha256(content).hexdigest(),
        specification=content,
        image_digest=settings.image_digest,
    )
    bundle = codec.convert(asked["secrets"], dict[str, dict[str, str]])
    secrets = {who: {key: Secret(value) for key, value in keys.items()} for who, keys in bundle.items()}
    LocalProvider(settings, step=count_down).create(spec, secrets)
    return 0


if __name__ == "__main__":
    sys.exit(main())
