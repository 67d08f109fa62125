#!/usr/bin/env bash
# A world model behind a URL, on a GPU that the training does not use. It must have the policy's tokenizer: the prompts
# are the policy's own token ids. Not run on GPUs by the authors; see docs/verl.md for what was.
#
#   CUDA_VISIBLE_DEVICES=7 bash recipe/verl/serve_world_model.sh
set -euo pipefail

exec vllm serve "${WORLD_MODEL:-Qwen/Qwen3-1.7B}" \
    --served-model-name "${WORLD_MODEL_NAME:-world-model}" \
    --port "${PORT:-8010}" \
    --max-model-len "${CONTEXT:-20480}" \
    --enable-prefix-caching \
    "$@"
