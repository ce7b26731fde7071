// SPDX-License-Identifier: Apache-2.0

package top

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// What terminals are told. All that take part in this century know these.
const (
	enter = "\x1b[?1049h\x1b[?25l" // the other screen, no cursor
	leave = "\x1b[?25h\x1b[?1049l"
	home  = "\x1b[H"
	toEOL = "\x1b[K"
	toEnd = "\x1b[J"
)

// Screen is a terminal that is drawn on. Keys are not echoed and come one by one; Ctrl-C is a signal as ever. It
// has to be closed, which gives the terminal back as it was.
type Screen struct {
	f     *os.File
	saved unix.Termios
}

// OpenScreen takes a terminal over.
func OpenScreen(f *os.File) (*Screen, error) {
	saved, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, err
	}
	quiet := *saved
	quiet.Lflag &^= unix.ECHO | unix.ICANON
	quiet.Cc[unix.VMIN], quiet.Cc[unix.VTIME] = 1, 0
	quiet.Cc[unix.VSUSP] = 0 // Ctrl-Z would leave the shell on this screen
	if err := unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, &quiet); err != nil {
		return nil, err
	}
	s := &Screen{f: f, saved: *saved}
	if _, err := f.WriteString(enter); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Size returns columns and rows; 80 and 24 where the terminal does not say.
func (s *Screen) Size() (width, height int) {
	ws, err := unix.IoctlGetWinsize(int(s.f.Fd()), unix.TIOCGWINSZ)
	if err != nil || ws.Col == 0 || ws.Row == 0 {
		return 80, 24
	}
	return int(ws.Col), int(ws.Row)
}

// Draw replaces what is shown, in one write, so that nothing flickers.
func (s *Screen) Draw(lines []string) error {
	_, err := s.f.WriteString(home + strings.Join(lines, toEOL+"\r\n") + toEOL + toEnd)
	return err
}

// Close gives the terminal back.
func (s *Screen) Close() error {
	_, err := s.f.WriteString(leave)
	if e := unix.IoctlSetTermios(int(s.f.Fd()), unix.TCSETS, &s.saved); err == nil {
		err = e
	}
	return err
}
