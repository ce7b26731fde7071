// SPDX-License-Identifier: Apache-2.0

// Package storefile is the format in which the objects of a Store lie in a file: one that describes
// itself, can be written and read as a stream, and is of use up to wherever it was cut.
//
// All numbers are little endian, sums are XXH3-64, nothing is aligned. The file's head, 64 bytes:
//
//	 0   8  magic "AFISTORE"
//	 8   4  version, 1
//	12   4  reserved, 0
//	16   8  when the export began, in seconds since 1970
//	24  32  reserved, 0
//	56   8  sum of bytes 0..55
//
// Then any number of records, each a head of 48 bytes, tenant, key and object:
//
//	 0   4  magic "OBJ1"
//	 4   2  bytes of the key, 1 to 4096
//	 6   2  bytes of the tenant, 0 to 256
//	 8   8  bytes of the object, at least 1
//	16   8  time left to live in ns when it was exported, 0 until evicted
//	24   4  flags: 1 soft pin
//	28   4  reserved, 0
//	32   8  sum of the object
//	40   8  sum of bytes 0..39, tenant and key
//
// Then the index, which says that the file is whole and where each record is:
//
//	 0   4  magic "IDX1"
//	 4   4  reserved, 0
//	 8   8  number of records
//	16      that many times: u64 offset of the record, u64 sum of its key
//
// And at the very end the trailer, 40 bytes:
//
//	 0   4  magic "END1"
//	 4   4  reserved, 0
//	 8   8  offset of the index
//	16   8  number of records
//	24   8  sum of the index
//	32   8  sum of bytes 0..31
//
// A reader goes from record to record and needs no index. A record whose object is damaged is lost alone.
// One whose head is damaged hides where the next one begins: with the index, and a file that can be read
// at any place, the reader goes on behind it; in a stream it ends there.
package storefile
