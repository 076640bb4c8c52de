#!/bin/sh
# Trains and measures Owlet: run.sh WORK_FOLDER [SHARDS] [STEPS] [SECONDS] [train.py options]
# WORK_FOLDER is an absolute path; the result is WORK_FOLDER/owlet. The tokenizer and heldout.txt
# are taken from ../owlet; `make_data.py tokenizer` and `make_data.py heldout` make them.
set -e
work=$1 shards=${2:-440} steps=${3:-20000} seconds=${4:-420}
[ $# -ge 4 ] && shift 4 || shift $#
here=$(cd "$(dirname "$0")" && pwd)
cd "$here"
export TOKENIZERS_PARALLELISM=false PYTHONUNBUFFERED=1
mkdir -p "$work/owlet"
cp ../owlet/tokenizer.json ../owlet/tokenizer_config.json ../owlet/heldout.txt "$work/owlet"
python3 make_data.py shards --out "$work/data" --shards "$shards" --workers 14 &
python3 train.py --data "$work/data" --out "$work/owlet" --shards "$shards" --steps "$steps" \
  --seconds "$seconds" "$@"
wait
python3 check_parity.py "$work/owlet" &
python3 evaluate.py --model "$work/owlet" --data "$work/data" --out "$work/owlet/evaluation.json" &
python3 make_golden.py --model "$work/owlet" &
wait
python3 plot_loss.py "$work/owlet/log.json" "$work/owlet/loss.png"
