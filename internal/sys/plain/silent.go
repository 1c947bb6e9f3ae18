package plain

// Silent returns an error that is err for errors.Is and errors.As, and has no text, for messages
// that say in words of their own what err says.
func Silent(err error) error { return silent{err} }

type silent struct{ err error }

func (silent) Error() string { return "" }

func (s silent) Unwrap() error { return s.err }
