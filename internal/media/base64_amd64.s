// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// Tables of the method of Muła and Lemire ("Faster Base64 Encoding and Decoding Using AVX2
// Instructions", 2018). Shuffles look up by the low four bits of a byte.

// A character is a digit if low[its low nibble] & high[its high nibble] is 0.
DATA low<>+0x00(SB)/8, $0x1111111111111115
DATA low<>+0x08(SB)/8, $0x1a1b1b1b1a131111
DATA low<>+0x10(SB)/8, $0x1111111111111115
DATA low<>+0x18(SB)/8, $0x1a1b1b1b1a131111
GLOBL low<>(SB), RODATA|NOPTR, $32

DATA high<>+0x00(SB)/8, $0x0804080402011010
DATA high<>+0x08(SB)/8, $0x1010101010101010
DATA high<>+0x10(SB)/8, $0x0804080402011010
DATA high<>+0x18(SB)/8, $0x1010101010101010
GLOBL high<>(SB), RODATA|NOPTR, $32

// What to add to a digit to get its value, by its high nibble; '/' has the place before that of '+'.
DATA roll<>+0x00(SB)/8, $0xb9b9bfbf04131000
DATA roll<>+0x08(SB)/8, $0x0000000000000000
DATA roll<>+0x10(SB)/8, $0xb9b9bfbf04131000
DATA roll<>+0x18(SB)/8, $0x0000000000000000
GLOBL roll<>(SB), RODATA|NOPTR, $32

DATA slash<>+0x00(SB)/4, $0x2f2f2f2f
GLOBL slash<>(SB), RODATA|NOPTR, $4

// Factors that join values in pairs: 6 and 6 bits, then 12 and 12.
DATA join6<>+0x00(SB)/4, $0x01400140
GLOBL join6<>(SB), RODATA|NOPTR, $4

DATA join12<>+0x00(SB)/4, $0x00011000
GLOBL join12<>(SB), RODATA|NOPTR, $4

// The three used bytes of each 32-bit word, most significant first, and then the six used words.
DATA pack<>+0x00(SB)/8, $0x090a040506000102
DATA pack<>+0x08(SB)/8, $0xffffffff0c0d0e08
DATA pack<>+0x10(SB)/8, $0x090a040506000102
DATA pack<>+0x18(SB)/8, $0xffffffff0c0d0e08
GLOBL pack<>(SB), RODATA|NOPTR, $32

DATA words<>+0x00(SB)/8, $0x0000000100000000
DATA words<>+0x08(SB)/8, $0x0000000400000002
DATA words<>+0x10(SB)/8, $0x0000000600000005
DATA words<>+0x18(SB)/8, $0x0000000700000007
GLOBL words<>(SB), RODATA|NOPTR, $32

// func blocksAVX2(dst, src *byte, n int) (done int)
TEXT ·blocksAVX2(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	XORQ AX, AX
	VMOVDQU low<>(SB), Y8
	VMOVDQU high<>(SB), Y9
	VMOVDQU roll<>(SB), Y10
	VPBROADCASTD slash<>(SB), Y11
	VPBROADCASTD join6<>(SB), Y12
	VPBROADCASTD join12<>(SB), Y13
	VMOVDQU pack<>(SB), Y14
	VMOVDQU words<>(SB), Y15

loop:
	CMPQ AX, CX
	JGE  end
	VMOVDQU (SI), Y0
	VPSRLD  $4, Y0, Y1
	VPAND   Y11, Y1, Y1  // high nibbles; bits above the fourth do not count
	VPAND   Y11, Y0, Y2  // low nibbles, likewise
	VPSHUFB Y1, Y9, Y3
	VPSHUFB Y2, Y8, Y2
	VPTEST  Y3, Y2
	JNE     end          // not all are digits
	VPCMPEQB Y11, Y0, Y2 // -1 where a slash is
	VPADDB  Y2, Y1, Y1
	VPSHUFB Y1, Y10, Y1
	VPADDB  Y1, Y0, Y0   // values
	VPMADDUBSW Y12, Y0, Y0
	VPMADDWD Y13, Y0, Y0
	VPSHUFB Y14, Y0, Y0
	VPERMD  Y0, Y15, Y0
	VMOVDQU Y0, (DI)
	ADDQ $32, SI
	ADDQ $24, DI
	INCQ AX
	JMP  loop

end:
	VZEROUPPER
	MOVQ AX, done+24(FP)
	RET
