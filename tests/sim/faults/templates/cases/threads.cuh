// Cases of faults.cu: what a warp does together, and what no thread should do.

//% if case == "divergent" then -- threads=32 finds divergent warp
if (thread < 16)
    warp_sync();
else
    store(global, static_cast<float>(warp_any(true)));
//% end -- case

//% if case == "part_of_a_warp" then -- threads=32 finds hang
if (thread < 16) warp_sync();
//% end -- case

//% if case == "not_uniform" then -- threads=32 finds value that is not uniform
store(global + thread, static_cast<float>(uniform(thread)));
//% end -- case

//% if case == "array_index" then -- finds array index out of range
int r[4] = {};
for (int i = 0; i <= static_cast<int>(load(global)) + 4; i++) r[i % 5] += i;
store(global + 64 + thread, static_cast<float>(r[thread & 3]));
//% end -- case

//% if case == "overflow" then -- finds integer overflow
const int large = 1 << 30;
store(global + 64 + thread, static_cast<float>(large *(static_cast<int>(load(global)) + 2)));
//% end -- case

//% if case == "shift" then -- finds shift out of range
store(global + 64 + thread, static_cast<float>(1 << (static_cast<int>(load(global)) + 32)));
//% end -- case

//% if case == "divide" then -- finds crash
store(global + 64 + thread, static_cast<float>(100 / static_cast<int>(load(global))));
//% end -- case

//% if case == "endless" then -- threads=32 finds endless loop
while (load(global) == 0) store(global + 64 + thread, 1.0f);
//% end -- case
