#!/usr/bin/env bash
# GRPO of Qwen3-8B with tools on one node of 8 GPUs: vLLM rollouts, FSDP, verl 0.9.1, and speculation while tools run.
# Everything but the four lines marked "obsspec" is an ordinary verl run. Not run on GPUs by the authors: that every
# option exists in verl 0.9.1 is tested, what it does to your hardware is not. See docs/verl.md.
#
#   pip install 'obsspec[verl]'
#   TRAIN=train.parquet VAL=val.parquet TOOLS=tools.py bash recipe/verl/run_qwen3_8b_grpo.sh
#
# With a world model (serve_world_model.sh), before: export WORLD_MODEL_URL=http://host:8010 WORLD_MODEL_NAME=world-model
# AGENT=sequential runs the same without speculation. Further arguments go to verl.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
: "${TRAIN:?the training data, a parquet file as verl reads it}"
: "${VAL:?the validation data}"
: "${TOOLS:?a Python file with @function_tool functions}"

overrides=(
    algorithm.adv_estimator=grpo
    algorithm.use_kl_in_reward=False
    data.train_files="$TRAIN"
    data.val_files="$VAL"
    data.return_raw_chat=True
    data.train_batch_size=64
    data.max_prompt_length=2048
    data.max_response_length=16384
    data.filter_overlong_prompts=True
    data.truncation=error
    actor_rollout_ref.model.path="${MODEL:-Qwen/Qwen3-8B}"
    actor_rollout_ref.model.use_remove_padding=True
    actor_rollout_ref.model.enable_gradient_checkpointing=True
    actor_rollout_ref.actor.optim.lr=1e-6
    actor_rollout_ref.actor.ppo_mini_batch_size=32
    actor_rollout_ref.actor.use_dynamic_bsz=True
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=20480
    actor_rollout_ref.actor.use_kl_loss=False
    actor_rollout_ref.rollout.name=vllm
    actor_rollout_ref.rollout.tensor_model_parallel_size=1
    actor_rollout_ref.rollout.gpu_memory_utilization=0.7
    actor_rollout_ref.rollout.calculate_log_probs=True
    actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True
    actor_rollout_ref.rollout.n=8
    actor_rollout_ref.rollout.multi_turn.enable=True
    actor_rollout_ref.rollout.multi_turn.format=hermes
    actor_rollout_ref.rollout.multi_turn.max_assistant_turns=32
    actor_rollout_ref.rollout.multi_turn.max_tool_response_length=4096
    actor_rollout_ref.rollout.multi_turn.function_tool_path="$TOOLS"
    actor_rollout_ref.rollout.agent.default_agent_loop="${AGENT:-speculative}"               # obsspec
    actor_rollout_ref.rollout.agent.agent_loop_config_path="$here/agent_loops.yaml"          # obsspec
    +actor_rollout_ref.rollout.agent.agent_loop_manager_class=obsspec.integrations.verl.managers.LoggingManagerTQ # obsspec
    actor_rollout_ref.rollout.scheduling_policy=priority                                     # obsspec
    trainer.logger='["console"]'
    trainer.project_name=obsspec
    trainer.experiment_name="qwen3-8b-grpo-${AGENT:-speculative}"
    trainer.n_gpus_per_node="${GPUS:-8}"
    trainer.nnodes=1
    trainer.save_freq=20
    trainer.test_freq=10
    trainer.total_epochs=1
)

exec python3 -m verl.trainer.main_ppo "${overrides[@]}" "$@"
