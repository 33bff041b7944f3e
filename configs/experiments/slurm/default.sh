#!/bin/bash
# An sbatch script for any dataset: a starting point to copy, with your own options and environment.
# Larder adds the number of nodes, and the variables with which larder.open() finds the data.
#SBATCH --job-name=train
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --output=%x-%j.log

set -eu
# source venv/bin/activate

# srun starts a process for each GPU; data.loader() gives each of them its part of every batch.
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" python3 train.py
