#!/usr/bin/env bash
# Makes a tree whose generator has the kernels calibrate.cu and calibrate_pair.cu too, for VARFLASH_SOURCE.
#
#   tests/sim/calibrate/root.sh FOLDER
set -eu
folder=$1
rm -rf "$folder"
mkdir -p "$folder"
cp -R gen templates "$folder/"
mv "$folder/gen/init.lua" "$folder/gen/generator.lua"
cp tests/sim/calibrate/init.lua "$folder/gen/"
cp tests/sim/calibrate/calibrate*.cu* "$folder/templates/"
