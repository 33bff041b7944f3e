#!/bin/bash
# An sbatch script for any dataset: a starting point to copy, with your own options and environment.
# Larder adds the number of nodes, and the variables with which larder.open() finds the data.
#SBATCH --job-name=train
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --output=%x-%j.log
#SBATCH --nodes=2
# Made by Larder for the cluster s; rewritten by every run.
# dataset: d
# version: 0123456789abcdef0123456789abcdef
# content digest: c0de
# By download.
# Training code reads it with: data = larder.open()
export SLURM_EXPORT_ENV=ALL
export LARDER_LOCATION=/cache/larder/d/versions/0123456789abcdef0123456789abcdef
export LARDER_SHARDS_TRAIN='/cache/larder/d/segments/5eed/shards/train/d-train-{000000..000003}.tar'
export LARDER_CACHE_DIR=/cache/cache
export AWS_DEFAULT_REGION=us-west-2

set -eu
# source venv/bin/activate

# srun starts a process for each GPU; data.loader() gives each of them its part of every batch.
LARDER_CACHE_DIR='/nvme/lar der/cache' \
env -u SLURM_NTASKS_PER_GPU srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 \
larder warm s3://bucket/team/larder/d/versions/0123456789abcdef0123456789abcdef --to '/nvme/lar der' || exit

srun --cpus-per-task="$SLURM_CPUS_PER_TASK" python3 train.py
