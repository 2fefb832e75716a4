# Write the C file (OUT) with the machine code of GPU kernels: src/ops/cuda/images.h.  FOLDER has a kernels_NN.cubin of each of
# ARCHITECTURES, which may be empty.
set(text "/* Made by scripts/cubins.cmake. */\n#include \"ops/cuda/images.h\"\n\n")
set(table "")
foreach(architecture ${ARCHITECTURES})
  string(REGEX MATCH "^[0-9]+" capability ${architecture}) # 90 of 90a
  set(file ${FOLDER}/kernels_${architecture}.cubin)
  file(SIZE ${file} bytes)
  string(APPEND text "extern const unsigned char rg_cubin_${capability}[] __attribute__((visibility(\"hidden\")));\n"
                     "__asm__(\".section .rodata\\n.balign 64\\nrg_cubin_${capability}: .incbin \\\"${file}\\\"\\n.previous\");\n\n")
  string(APPEND table "    { ${capability}, rg_cubin_${capability}, ${bytes} },\n")
endforeach()
file(WRITE ${OUT} "${text}const rg_cuda_image rg_cuda_images[] = {\n${table}    { 0 },\n};\n")
