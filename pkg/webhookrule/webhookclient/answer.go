package webhookclient

import (
	"unicode"
	"unicode/utf8"

	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
)

const (
	// MaxAnswerBytes bounds the body of an answer.
	MaxAnswerBytes = 1 << 20

	// maxFinishedNames bounds finishedNames, and maxNameBytes each of them: more pods than a
	// request can have, and the longest name of a pod.
	maxFinishedNames = 1000
	maxNameBytes     = 253
)

// decodePost reads the answer to a POST, with its message at full length. Absent fields are false
// or empty, so no absent field approves a pod; unknown fields are ignored. Every error is a
// *Failure of ClassBadResponse that has the field and the position.
func decodePost(body []byte) (webhooktask.PostAnswer, error) {
	object, err := readObject(body)
	if err != nil {
		return webhooktask.PostAnswer{}, err
	}
	var answer webhooktask.PostAnswer
	err = firstError(
		object.boolean("success", &answer.Success),
		object.message("message", &answer.Message),
		object.names("finishedNames", &answer.FinishedNames),
		object.boolean("poll", &answer.Poll),
		object.boolean("async", &answer.Async),
		object.identifier("taskId", &answer.TaskID),
		object.identifier("traceId", &answer.TraceID),
	)
	if err != nil {
		return webhooktask.PostAnswer{}, err
	}
	if answer.TaskID == "" {
		answer.TaskID = answer.TraceID
	}
	if answer.Success && (answer.Poll || answer.Async) && answer.TaskID == "" {
		field := object.at("poll")
		if !answer.Poll {
			field = object.at("async")
		}
		return webhooktask.PostAnswer{}, object.bad(field, "the answer is to be polled for, but has neither taskId nor traceId")
	}
	return answer, nil
}

// decodePoll reads the answer to a poll, like decodePost.
func decodePoll(body []byte) (webhooktask.PollAnswer, error) {
	object, err := readObject(body)
	if err != nil {
		return webhooktask.PollAnswer{}, err
	}
	var answer webhooktask.PollAnswer
	err = firstError(
		object.boolean("success", &answer.Success),
		object.message("message", &answer.Message),
		object.boolean("finished", &answer.Finished),
		object.boolean("stop", &answer.Stop),
		object.names("finishedNames", &answer.FinishedNames),
	)
	if err != nil {
		return webhooktask.PollAnswer{}, err
	}
	return answer, nil
}

// boolean reads true or false, and no other spelling: many parsers take the string "false" for
// true.
func (o *object) boolean(name string, into *bool) error {
	field, has := o.fields[name]
	if !has {
		return nil
	}
	value, is := field.value.(bool)
	if !is {
		return o.bad(field.offset, "%s must be true or false, is %s", name, jsonKind(field.value))
	}
	*into = value
	return nil
}

// message reads a string of any length; null counts as absent. The caller cuts it after
// credentials are redacted.
func (o *object) message(name string, into *string) error {
	field, has := o.fields[name]
	if !has || field.value == nil {
		return nil
	}
	value, is := field.value.(string)
	if !is {
		return o.bad(field.offset, "%s must be a string, is %s", name, jsonKind(field.value))
	}
	*into = value
	return nil
}

// identifier reads a string, or a number as it is written; null counts as absent. Services that
// count their tasks send numbers.
func (o *object) identifier(name string, into *string) error {
	field, has := o.fields[name]
	if !has || field.value == nil {
		return nil
	}
	var value string
	switch given := field.value.(type) {
	case string:
		value = given
	case number:
		value = string(given)
	default:
		return o.bad(field.offset, "%s must be a string or a number, is %s", name, jsonKind(field.value))
	}
	if len(value) > webhooktask.MaxTaskIDBytes {
		return o.bad(field.offset, "%s is %d bytes long, at most %d are accepted", name, len(value), webhooktask.MaxTaskIDBytes)
	}
	for _, char := range value {
		if !unicode.IsPrint(char) || char == utf8.RuneError {
			return o.bad(field.offset, "%s has a character that cannot be printed", name)
		}
	}
	*into = value
	return nil
}

// names reads a list of strings; null is an empty list, because Go encodes a nil slice as null.
func (o *object) names(name string, into *[]string) error {
	field, has := o.fields[name]
	if !has || field.value == nil {
		return nil
	}
	list, is := field.value.([]element)
	if !is {
		return o.bad(field.offset, "%s must be a list of strings, is %s", name, jsonKind(field.value))
	}
	if len(list) > maxFinishedNames {
		return o.bad(field.offset, "%s has %d names, at most %d are accepted", name, len(list), maxFinishedNames)
	}
	var values []string
	for _, given := range list {
		value, is := given.value.(string)
		if !is {
			return o.bad(given.offset, "%s must be a list of strings, has %s", name, jsonKind(given.value))
		}
		if len(value) > maxNameBytes {
			return o.bad(given.offset, "%s has a name of %d bytes, at most %d are accepted", name, len(value), maxNameBytes)
		}
		values = append(values, value)
	}
	*into = values
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
