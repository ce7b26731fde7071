// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// The instructions for two rounds of SHA-256 take four cycles and wait for one another: 128 cycles per block. But another
// can begin every two. Texts take turns here, each in the time in which the others wait: a block of two takes hardly
// longer than one of one, and where there are four, there is always one that can go on, so that a block of four takes
// the 256 cycles that its instructions need.

// The constants of the rounds.
DATA rounds<>+0x00(SB)/8, $0x71374491428a2f98
DATA rounds<>+0x08(SB)/8, $0xe9b5dba5b5c0fbcf
DATA rounds<>+0x10(SB)/8, $0x59f111f13956c25b
DATA rounds<>+0x18(SB)/8, $0xab1c5ed5923f82a4
DATA rounds<>+0x20(SB)/8, $0x12835b01d807aa98
DATA rounds<>+0x28(SB)/8, $0x550c7dc3243185be
DATA rounds<>+0x30(SB)/8, $0x80deb1fe72be5d74
DATA rounds<>+0x38(SB)/8, $0xc19bf1749bdc06a7
DATA rounds<>+0x40(SB)/8, $0xefbe4786e49b69c1
DATA rounds<>+0x48(SB)/8, $0x240ca1cc0fc19dc6
DATA rounds<>+0x50(SB)/8, $0x4a7484aa2de92c6f
DATA rounds<>+0x58(SB)/8, $0x76f988da5cb0a9dc
DATA rounds<>+0x60(SB)/8, $0xa831c66d983e5152
DATA rounds<>+0x68(SB)/8, $0xbf597fc7b00327c8
DATA rounds<>+0x70(SB)/8, $0xd5a79147c6e00bf3
DATA rounds<>+0x78(SB)/8, $0x1429296706ca6351
DATA rounds<>+0x80(SB)/8, $0x2e1b213827b70a85
DATA rounds<>+0x88(SB)/8, $0x53380d134d2c6dfc
DATA rounds<>+0x90(SB)/8, $0x766a0abb650a7354
DATA rounds<>+0x98(SB)/8, $0x92722c8581c2c92e
DATA rounds<>+0xa0(SB)/8, $0xa81a664ba2bfe8a1
DATA rounds<>+0xa8(SB)/8, $0xc76c51a3c24b8b70
DATA rounds<>+0xb0(SB)/8, $0xd6990624d192e819
DATA rounds<>+0xb8(SB)/8, $0x106aa070f40e3585
DATA rounds<>+0xc0(SB)/8, $0x1e376c0819a4c116
DATA rounds<>+0xc8(SB)/8, $0x34b0bcb52748774c
DATA rounds<>+0xd0(SB)/8, $0x4ed8aa4a391c0cb3
DATA rounds<>+0xd8(SB)/8, $0x682e6ff35b9cca4f
DATA rounds<>+0xe0(SB)/8, $0x78a5636f748f82ee
DATA rounds<>+0xe8(SB)/8, $0x8cc7020884c87814
DATA rounds<>+0xf0(SB)/8, $0xa4506ceb90befffa
DATA rounds<>+0xf8(SB)/8, $0xc67178f2bef9a3f7
GLOBL rounds<>(SB), RODATA|NOPTR, $256

// Words of a text stand with their highest byte in front.
DATA swap<>+0x00(SB)/8, $0x0405060700010203
DATA swap<>+0x08(SB)/8, $0x0c0d0e0f08090a0b
GLOBL swap<>(SB), RODATA|NOPTR, $16

// FIRST adds the words and the constants of four rounds, k and w in any order, in w, and makes the first two of them, from
// the halves s and t of the state; LAST makes the other two.
#define FIRST(k, w, s, t) \
	PADDD       k, w;  \
	MOVO        w, X0; \
	SHA256RNDS2 X0, s, t
#define LAST(w, s, t) \
	PSHUFD      $0x0e, w, X0; \
	SHA256RNDS2 X0, t, s

// NEXT puts the four words in the place of w that come after those of w, x, y and z.
#define NEXT(w, x, y, z) \
	SHA256MSG1 x, w;      \
	MOVO       z, X0;     \
	PALIGNR    $4, y, X0; \
	PADDD      X0, w;     \
	SHA256MSG2 z, w

// ADD adds the state that a block began with to the half s that it left.
#define ADD(at, of, s) \
	MOVOU at(of), X1; \
	PADDD X1, s;      \
	MOVOU s, at(of)

// LOAD reads four words of a text.
#define LOAD(at, from, w) \
	MOVOU  at(from), w; \
	PSHUFB X14, w

// One text: the state is in X2 and X3, the words in X6 to X9.

// ONE makes four rounds, and LATER1 those whose words are used no more.
#define LATER1(at, a) \
	MOVOU at(R8), X1;     \
	FIRST(a, X1, X2, X3); \
	LAST(X1, X2, X3)
#define ONE(at, a, ax, ay, az) \
	LATER1(at, a); \
	NEXT(a, ax, ay, az)

// func one(l *lanes, n int)
TEXT ·one(SB), NOSPLIT, $0-16
	MOVQ  l+0(FP), AX
	MOVQ  n+8(FP), CX
	MOVQ  0(AX), DI
	MOVQ  32(AX), R9
	LEAQ  rounds<>(SB), R8
	MOVOU swap<>(SB), X14
	MOVOU 0(DI), X2
	MOVOU 16(DI), X3

loop:
	LOAD(0, R9, X6)
	LOAD(16, R9, X7)
	LOAD(32, R9, X8)
	LOAD(48, R9, X9)
	ONE(0, X6, X7, X8, X9)
	ONE(16, X7, X8, X9, X6)
	ONE(32, X8, X9, X6, X7)
	ONE(48, X9, X6, X7, X8)
	ONE(64, X6, X7, X8, X9)
	ONE(80, X7, X8, X9, X6)
	ONE(96, X8, X9, X6, X7)
	ONE(112, X9, X6, X7, X8)
	ONE(128, X6, X7, X8, X9)
	ONE(144, X7, X8, X9, X6)
	ONE(160, X8, X9, X6, X7)
	ONE(176, X9, X6, X7, X8)
	LATER1(192, X6)
	LATER1(208, X7)
	LATER1(224, X8)
	LATER1(240, X9)
	ADD(0, DI, X2)
	ADD(16, DI, X3)
	ADDQ  $64, R9
	DECQ  CX
	JNZ   loop
	RET

// Two texts: the states are in X2 and X3, X4 and X5, the words in X6 to X9 and X10 to X13.

// BOTH makes four rounds of both texts, and LATER2 those of them whose words are used no more.
#define LATER2(at, a, b) \
	MOVOU at(R8), X1;      \
	MOVO  X1, X15;         \
	FIRST(a, X1, X2, X3);  \
	FIRST(b, X15, X4, X5); \
	LAST(X1, X2, X3);      \
	LAST(X15, X4, X5)
#define BOTH(at, a, ax, ay, az, b, bx, by, bz) \
	LATER2(at, a, b);    \
	NEXT(a, ax, ay, az); \
	NEXT(b, bx, by, bz)

// func two(l *lanes, n int)
TEXT ·two(SB), NOSPLIT, $0-16
	MOVQ  l+0(FP), AX
	MOVQ  n+8(FP), CX
	MOVQ  0(AX), DI
	MOVQ  8(AX), SI
	MOVQ  32(AX), R9
	MOVQ  40(AX), R10
	LEAQ  rounds<>(SB), R8
	MOVOU swap<>(SB), X14
	MOVOU 0(DI), X2
	MOVOU 16(DI), X3
	MOVOU 0(SI), X4
	MOVOU 16(SI), X5

loop:
	LOAD(0, R9, X6)
	LOAD(16, R9, X7)
	LOAD(32, R9, X8)
	LOAD(48, R9, X9)
	LOAD(0, R10, X10)
	LOAD(16, R10, X11)
	LOAD(32, R10, X12)
	LOAD(48, R10, X13)
	BOTH(0, X6, X7, X8, X9, X10, X11, X12, X13)
	BOTH(16, X7, X8, X9, X6, X11, X12, X13, X10)
	BOTH(32, X8, X9, X6, X7, X12, X13, X10, X11)
	BOTH(48, X9, X6, X7, X8, X13, X10, X11, X12)
	BOTH(64, X6, X7, X8, X9, X10, X11, X12, X13)
	BOTH(80, X7, X8, X9, X6, X11, X12, X13, X10)
	BOTH(96, X8, X9, X6, X7, X12, X13, X10, X11)
	BOTH(112, X9, X6, X7, X8, X13, X10, X11, X12)
	BOTH(128, X6, X7, X8, X9, X10, X11, X12, X13)
	BOTH(144, X7, X8, X9, X6, X11, X12, X13, X10)
	BOTH(160, X8, X9, X6, X7, X12, X13, X10, X11)
	BOTH(176, X9, X6, X7, X8, X13, X10, X11, X12)
	LATER2(192, X6, X10)
	LATER2(208, X7, X11)
	LATER2(224, X8, X12)
	LATER2(240, X9, X13)
	ADD(0, DI, X2)
	ADD(16, DI, X3)
	ADD(0, SI, X4)
	ADD(16, SI, X5)
	ADDQ  $64, R9
	ADDQ  $64, R10
	DECQ  CX
	JNZ   loop
	RET

// Four texts: the states are in X2 to X9, two for each. The words are in the frame, 64 bytes for each text.

// LOAD4 reads a block of a text.
#define LOAD4(from, text) \
	MOVOU  0(from), X1;            \
	MOVOU  16(from), X10;          \
	MOVOU  32(from), X11;          \
	MOVOU  48(from), X12;          \
	PSHUFB X14, X1;                \
	PSHUFB X14, X10;               \
	PSHUFB X14, X11;               \
	PSHUFB X14, X12;               \
	MOVOU  X1, (text*64+0)(SP);    \
	MOVOU  X10, (text*64+16)(SP);  \
	MOVOU  X11, (text*64+32)(SP);  \
	MOVOU  X12, (text*64+48)(SP)

// FIRST4 is FIRST for the words at w in the frame, which it leaves in k; the constants are in X15.
#define FIRST4(text, w, k, s, t) \
	MOVOU (text*64+w*16)(SP), k; \
	FIRST(X15, k, s, t)

// NEXT4 is NEXT for words in the frame, by way of p and q.
#define NEXT4(text, w, x, y, z, p, q) \
	MOVOU      (text*64+w*16)(SP), p;   \
	MOVOU      (text*64+x*16)(SP), q;   \
	SHA256MSG1 q, p;                    \
	MOVOU      (text*64+z*16)(SP), q;   \
	MOVO       q, X0;                   \
	MOVOU      (text*64+y*16)(SP), X15; \
	PALIGNR    $4, X15, X0;             \
	PADDD      X0, p;                   \
	SHA256MSG2 q, p;                    \
	MOVOU      p, (text*64+w*16)(SP)

// ALL makes four rounds of all texts, and LATER4 those of them whose words are used no more.
#define LATER4(at, w) \
	MOVOU at(R8), X15;            \
	FIRST4(0, w, X10, X2, X3);    \
	FIRST4(1, w, X11, X4, X5);    \
	FIRST4(2, w, X12, X6, X7);    \
	FIRST4(3, w, X13, X8, X9);    \
	LAST(X10, X2, X3);            \
	LAST(X11, X4, X5);            \
	LAST(X12, X6, X7);            \
	LAST(X13, X8, X9)
#define ALL(at, w, x, y, z) \
	LATER4(at, w);                   \
	NEXT4(0, w, x, y, z, X1, X10);   \
	NEXT4(1, w, x, y, z, X11, X12);  \
	NEXT4(2, w, x, y, z, X13, X10);  \
	NEXT4(3, w, x, y, z, X1, X12)

// func four(l *lanes, n int)
TEXT ·four(SB), NOSPLIT, $256-16
	MOVQ  l+0(FP), AX
	MOVQ  n+8(FP), CX
	MOVQ  0(AX), DI
	MOVQ  8(AX), SI
	MOVQ  16(AX), BX
	MOVQ  24(AX), DX
	MOVQ  32(AX), R9
	MOVQ  40(AX), R10
	MOVQ  48(AX), R11
	MOVQ  56(AX), R12
	LEAQ  rounds<>(SB), R8
	MOVOU swap<>(SB), X14
	MOVOU 0(DI), X2
	MOVOU 16(DI), X3
	MOVOU 0(SI), X4
	MOVOU 16(SI), X5
	MOVOU 0(BX), X6
	MOVOU 16(BX), X7
	MOVOU 0(DX), X8
	MOVOU 16(DX), X9

loop:
	LOAD4(R9, 0)
	LOAD4(R10, 1)
	LOAD4(R11, 2)
	LOAD4(R12, 3)
	ALL(0, 0, 1, 2, 3)
	ALL(16, 1, 2, 3, 0)
	ALL(32, 2, 3, 0, 1)
	ALL(48, 3, 0, 1, 2)
	ALL(64, 0, 1, 2, 3)
	ALL(80, 1, 2, 3, 0)
	ALL(96, 2, 3, 0, 1)
	ALL(112, 3, 0, 1, 2)
	ALL(128, 0, 1, 2, 3)
	ALL(144, 1, 2, 3, 0)
	ALL(160, 2, 3, 0, 1)
	ALL(176, 3, 0, 1, 2)
	LATER4(192, 0)
	LATER4(208, 1)
	LATER4(224, 2)
	LATER4(240, 3)
	ADD(0, DI, X2)
	ADD(16, DI, X3)
	ADD(0, SI, X4)
	ADD(16, SI, X5)
	ADD(0, BX, X6)
	ADD(16, BX, X7)
	ADD(0, DX, X8)
	ADD(16, DX, X9)
	ADDQ  $64, R9
	ADDQ  $64, R10
	ADDQ  $64, R11
	ADDQ  $64, R12
	DECQ  CX
	JNZ   loop
	RET
