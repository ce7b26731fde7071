// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// The instructions for SHA-256 take four cycles each and wait for one another: 128 cycles per block. Two texts take
// turns here, each in the time in which the other waits, so that a block of both takes hardly longer than one of either.

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

// FOUR makes four rounds of one text: with the words w, from the halves s and t of its state.
#define FOUR(at, w, s, t) \
	MOVOU       at(R8), X0; \
	PADDD       w, X0;      \
	SHA256RNDS2 X0, s, t;   \
	PSHUFD      $0x0e, X0, X0; \
	SHA256RNDS2 X0, t, s

// NEXT puts the four words in the place of w that come after those of w, x, y and z.
#define NEXT(w, x, y, z) \
	SHA256MSG1 x, w;     \
	MOVO       z, X1;    \
	PALIGNR    $4, y, X1; \
	PADDD      X1, w;    \
	SHA256MSG2 z, w

// BOTH makes four rounds of both texts, and LATER those of them whose words are used no more.
#define LATER(at, a, b) \
	FOUR(at, a, X2, X3); \
	FOUR(at, b, X4, X5)
#define BOTH(at, a, ax, ay, az, b, bx, by, bz) \
	LATER(at, a, b);      \
	NEXT(a, ax, ay, az);  \
	NEXT(b, bx, by, bz)

// LOAD reads four words of a text.
#define LOAD(at, from, w) \
	MOVOU  at(from), w; \
	PSHUFB X14, w

// ADD adds the state that a block began with to the half s that it left.
#define ADD(at, of, s) \
	MOVOU at(of), X1; \
	PADDD X1, s;      \
	MOVOU s, at(of)

// func instructed(a, b *state, p, q *byte, n int)
TEXT ·instructed(SB), NOSPLIT, $0-40
	MOVQ  a+0(FP), DI
	MOVQ  b+8(FP), SI
	MOVQ  p+16(FP), R9
	MOVQ  q+24(FP), R10
	MOVQ  n+32(FP), CX
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
	LATER(192, X6, X10)
	LATER(208, X7, X11)
	LATER(224, X8, X12)
	LATER(240, X9, X13)
	ADD(0, DI, X2)
	ADD(16, DI, X3)
	ADD(0, SI, X4)
	ADD(16, SI, X5)
	ADDQ $64, R9
	ADDQ $64, R10
	DECQ CX
	JNZ  loop
	RET
