#!/bin/bash
# Train on several nodes of a Slurm cluster: one task a node, each with all GPUs of its node.
#
#     RUN=/shared/runs/wmt14 sbatch recipes/launch/slurm.sh --dataset wmt14_translate/de-en --preset base
#
# RUN is the run directory, on a file system that all nodes see; all arguments go to the recipe. The same command again
# goes on with the run. See README.md here.

#SBATCH --job-name=translation
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --time=24:00:00
# Two minutes before the time is up the tasks get SIGTERM: they save and end.
#SBATCH --signal=TERM@120
# When a node fails the job is queued again, and goes on.
#SBATCH --requeue
#SBATCH --open-mode=append

set -euo pipefail
: "${RUN:?must be the run directory, on a file system that all nodes see}"

# sbatch copies this script away, so its own place tells nothing: start it from the repository, or set RECIPE.
export RECIPE="${RECIPE:-$SLURM_SUBMIT_DIR/recipes/train_wmt.py}"
export PYTHON="${PYTHON:-python}"
# A free port, the same on all nodes; jobs that share a node need different ones.
port="${PORT:-$((20000 + SLURM_JOB_ID % 10000))}"
# "node1:20001","node2:20001"
WORKERS="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed "s/.*/\"&:$port\"/" | paste -sd, -)"
export WORKERS

resume=()
if [ -f "$RUN/config.json" ]; then resume=(--resume); fi

# Each task fills in its own number; in block distribution, one a node, tasks are numbered as the nodes are.
# When a task ends badly the others are ended too: without it they cannot go on.
srun --kill-on-bad-exit=1 --distribution=block bash -c '
    export TF_CONFIG="{\"cluster\": {\"worker\": [$WORKERS]}, \"task\": {\"type\": \"worker\", \"index\": $SLURM_PROCID}}"
    exec "$PYTHON" "$RECIPE" "$@"
' task --strategy multi-worker --run-directory "$RUN" "${resume[@]}" "$@"
