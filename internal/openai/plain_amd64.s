// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// LOOK marks in the register mark, by way of Y4 and Y5, the bytes at an offset that stop.
#define LOOK(at, mark) \
	VMOVDQU  at(SI), mark;     \
	VPCMPEQB mark, Y8, Y4;     \
	VPCMPEQB mark, Y9, Y5;     \
	VPCMPGTB mark, Y10, mark;  \
	VPOR     Y4, Y5, Y4;       \
	VPOR     Y4, mark, mark

// FIRST returns the place of the first byte that is marked, if any is.
#define FIRST(at, mark, next) \
	VPMOVMSKB mark, AX; \
	TESTL     AX, AX;   \
	JZ        next;     \
	BSFL      AX, AX;   \
	LEAQ      at(SI)(AX*1), AX; \
	JMP       found

// func vectorsAVX2(b *byte, n int, least int8) (before int)
TEXT ·vectorsAVX2(SB), NOSPLIT, $0-32
	MOVQ    b+0(FP), SI
	MOVQ    n+8(FP), CX
	MOVBLZX least+16(FP), AX
	VMOVD   AX, X10
	VPBROADCASTB X10, Y10
	MOVL    $0x22, AX
	VMOVD   AX, X8
	VPBROADCASTB X8, Y8
	MOVL    $0x5c, AX
	VMOVD   AX, X9
	VPBROADCASTB X9, Y9

loop:
	LOOK(0, Y0)
	LOOK(32, Y1)
	LOOK(64, Y2)
	LOOK(96, Y3)
	VPOR  Y0, Y1, Y6
	VPOR  Y2, Y3, Y7
	VPOR  Y6, Y7, Y6
	VPTEST Y6, Y6
	JNZ   which
	ADDQ  $128, SI
	DECQ  CX
	JNZ   loop
	MOVQ  SI, AX
	JMP   found

which:
	FIRST(0, Y0, second)

second:
	FIRST(32, Y1, third)

third:
	FIRST(64, Y2, fourth)

fourth:
	FIRST(96, Y3, found)

found:
	SUBQ  b+0(FP), AX
	MOVQ  AX, before+24(FP)
	VZEROUPPER
	RET
