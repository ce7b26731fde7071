// SPDX-License-Identifier: Apache-2.0

package media

import "encoding/binary"

// exifPrefix precedes the TIFF structure in JPEG, and in the WebP files of some writers.
const exifPrefix = "Exif\x00\x00"

// orientationOf returns the orientation in a TIFF structure: 1 to 8, and 1 for whatever is missing,
// damaged or out of range. It is the only reader of EXIF.
func orientationOf(tiff []byte) int {
	if len(tiff) < 8 {
		return 1
	}
	var order binary.ByteOrder
	switch string(tiff[:4]) {
	case "II*\x00":
		order = binary.LittleEndian
	case "MM\x00*":
		order = binary.BigEndian
	default:
		return 1
	}
	offset := uint64(order.Uint32(tiff[4:]))
	if offset+2 > uint64(len(tiff)) {
		return 1
	}
	entries := tiff[offset+2:]
	const entrySize, tagOrientation, typeShort = 12, 0x0112, 3
	for range order.Uint16(tiff[offset:]) {
		if len(entries) < entrySize {
			return 1
		}
		if order.Uint16(entries) == tagOrientation {
			v := order.Uint16(entries[8:])
			if order.Uint16(entries[2:]) != typeShort || order.Uint32(entries[4:]) != 1 || v < 1 || v > 8 {
				return 1
			}
			return int(v)
		}
		entries = entries[entrySize:]
	}
	return 1
}
