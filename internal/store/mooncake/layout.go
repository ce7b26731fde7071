// SPDX-License-Identifier: Apache-2.0

package mooncake

// putLayout is the form that one release of Mooncake gives its ReplicateConfig, the only argument
// that differs between releases. All of them are written with their default: one replica, and pinned softly
// or not.
type putLayout struct {
	release string // as findings and errors name it
	args    typ    // of the arguments of a PUT
	write   func(e *encoder, pin bool)
}

// putLayouts lists what is known, newest first. A server that was built with another one refuses the
// call before it does anything (rpcBadArguments), so they can be tried in turn. 0.3.10 is known only
// to be refused by name: its TCP reads block the pings of everybody.
var putLayouts = []putLayout{
	{"0.3.13", putArgs(tU64, tU64, tU64, tU8, opt(tU64), tBool, vec(tStr), tStr, vec(tStr), tBool, tU8, tStr, opt(vec(tStr))),
		func(e *encoder, pin bool) {
			e.u64(1) // replica_num
			e.u64(0) // nof_replica_num
			e.u64(0) // dfs_replica_num
			e.u8(softPinAction(pin))
			e.u8(0)       // soft_pin_ttl_ms: none
			e.bool(false) // with_hard_pin
			e.length(0)   // preferred_segments
			e.str("")     // preferred_segment
			e.length(0)   // preferred_nof_segments
			e.bool(false) // prefer_alloc_in_same_node
			e.u8(0)       // data_type: unknown
			e.str("")     // host_id
			e.u8(0)       // group_ids: none
		}},
	{"0.3.12", putArgs(tU64, tU64, tBool, tBool, vec(tStr), tStr, vec(tStr), tBool, tU8, tStr, opt(vec(tStr))),
		func(e *encoder, pin bool) {
			writeLayout311(e, pin)
			e.str("") // host_id
			e.u8(0)   // group_ids: none
		}},
	{"0.3.11", putArgs(tU64, tU64, tBool, tBool, vec(tStr), tStr, vec(tStr), tBool, tU8), writeLayout311},
	{oldRelease, putArgs(tU64, tBool, tBool, vec(tStr), tStr, tBool),
		func(e *encoder, pin bool) {
			e.u64(1)      // replica_num
			e.bool(pin)   // with_soft_pin
			e.bool(false) // with_hard_pin
			e.length(0)   // preferred_segments
			e.str("")     // preferred_segment
			e.bool(false) // prefer_alloc_in_same_node
		}},
}

const oldRelease = "0.3.10"

// softPinAction enables the pin, or leaves it as it is; the time that it holds is the master's.
func softPinAction(pin bool) uint8 {
	if pin {
		return 1
	}
	return 0
}

func writeLayout311(e *encoder, pin bool) {
	e.u64(1)      // replica_num
	e.u64(0)      // nof_replica_num
	e.bool(pin)   // with_soft_pin
	e.bool(false) // with_hard_pin
	e.length(0)   // preferred_segments
	e.str("")     // preferred_segment
	e.length(0)   // preferred_nof_segments
	e.bool(false) // prefer_alloc_in_same_node
	e.u8(0)       // data_type: unknown
}

// putArgs is the type of the arguments of a PUT where the ReplicateConfig has these fields.
func putArgs(config ...typ) typ {
	return tuple(vec(tStr), vec(tU64), vec(tU64), tuple(config...), tI32, tUUID)
}
