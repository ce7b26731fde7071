// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"fmt"

	"afterimage/internal/store"
)

// code is an ErrorCode of Mooncake: 0 or negative.
type code int32

// The codes that this client tells apart.
const (
	codeOK              code = 0
	codeInternal        code = -1
	codeNoSpace         code = -200
	codeBadParams       code = -600
	codeIllegalClient   code = -601
	codeInvalidReplica  code = -702
	codeNotReady        code = -703
	codeNotFound        code = -704
	codeExists          code = -705
	codeLeased          code = -706
	codeLeaseExpired    code = -707
	codeReplicating     code = -708
	codeReplicaBusy     code = -714
	codeTransferFailed  code = -800
	codeBadChecksum     code = -801
	codeRPCFailed       code = -900
	codeRPCTimeout      code = -901
	codeOtherMode       code = -1010
	codeOtherModeEnd    code = -1019
	codeTenantQuota     code = -1700
	codeTenantEnd       code = -1709
	codeUnknownResponse code = -1 << 31   // ours: an answer that makes no sense
	codeOtherSize       code = -1<<31 + 1 // ours: the object is of another size than its reader knows
)

var codeNames = map[code]string{
	codeOK: "ok", codeInternal: "internal error", codeNoSpace: "no space", codeBadParams: "invalid parameters",
	codeIllegalClient: "pre-empted by another writer", codeInvalidReplica: "invalid replica",
	codeNotReady: "being written", codeNotFound: "not found", codeExists: "exists already", codeLeased: "leased",
	codeLeaseExpired: "lease expired", codeReplicating: "being replicated", codeReplicaBusy: "replica busy",
	codeTransferFailed: "transfer failed", codeBadChecksum: "checksum mismatch", codeRPCFailed: "master unreachable",
	codeRPCTimeout: "master timed out", codeOtherMode: "master does not serve", codeTenantQuota: "tenant quota exceeded",
	codeUnknownResponse: "senseless answer", codeOtherSize: "of another size",
}

// String returns what c means and its number.
func (c code) String() string {
	if name, ok := codeNames[c]; ok {
		return fmt.Sprintf("%s (%d)", name, int32(c))
	}
	return fmt.Sprintf("code %d", int32(c))
}

// errHeld is the class of what may go on: this client holds the range and distrusts the key.
var errHeld = fmt.Errorf("%w: %w", store.ErrUnconfirmed, store.ErrHeld)

// getClass returns the class of a GET that ended with c, nil for success. What is not known to be
// safe counts as unconfirmed: the server gives a transfer up after 60 s and cannot cancel it.
func getClass(c code) error {
	switch c {
	case codeOK:
		return nil
	case codeNotFound, codeNotReady, codeLeaseExpired, codeBadChecksum:
		return store.ErrMiss // not ErrExpired: a second reading was made already
	}
	return sharedClass(c)
}

// putClass returns the class of a PUT that ended with c, nil for success.
func putClass(c code) error {
	switch c {
	case codeOK:
		return nil
	case codeIllegalClient, codeNotFound, codeNotReady, codeReplicating, codeReplicaBusy:
		return store.ErrRejected // pre-empted or removed: not stored, and the transfer is over
	}
	return sharedClass(c)
}

// sharedClass classifies the codes that mean the same for GET and PUT.
func sharedClass(c code) error {
	switch {
	case c == codeNoSpace || c == codeBadParams || c == codeInvalidReplica || c == codeExists || c == codeOtherSize:
		return store.ErrRejected
	case c == codeRPCFailed || c == codeRPCTimeout:
		return store.ErrUnavailable // only calls to the master can fail so; nothing is being transferred
	case c <= codeOtherMode && c >= codeOtherModeEnd:
		return store.ErrUnavailable
	case c <= codeTenantQuota && c >= codeTenantEnd:
		return store.ErrRejected
	}
	return errHeld
}
