// SPDX-License-Identifier: Apache-2.0

package openai

// asText refuses every part that is not text, in vLLM's words where it has any.
func (p *rawPart) asText() error {
	switch p.kind {
	case kindText, "input_text", "output_text":
	case "":
		return badParam(p.path()+".type", "%s.type is required, for example \"text\" or \"image_url\".", p.path())
	case "input_audio", "audio_url", "audio_embeds":
		return badParam("audio", "At most 0 audio(s) may be provided in one prompt.")
	case "video_url", "video_embeds", "video":
		return badParam("video", "At most 0 video(s) may be provided in one prompt.")
	default:
		return badParam(p.path()+".type", "%s.type %q is not known: use \"text\" or \"image_url\".", p.path(), Shorten(p.kind))
	}
	if p.image != absent {
		return badParam(p.path(), "%s is of type %q but has an image_url: set its type to \"image_url\".", p.path(), p.kind)
	}
	if p.textGot != "" {
		return badParam(p.path()+".text", "%s.text must be a string, got %s.", p.path(), p.textGot)
	}
	return nil
}

// imageURL returns the URL of an image part.
func (p *rawPart) imageURL() ([]byte, error) {
	path := p.path() + ".image_url"
	switch {
	case p.image == absent:
		return nil, badParam(path, "%s is required in a part of type image_url.", path)
	case p.image == notObject:
		return nil, badParam(path, "%s must be an object like {\"url\": \"...\"}, got %s.", path, p.imageGot)
	case p.urlGot != "":
		return nil, badParam(path+".url", "%s.url must be a string, got %s.", path, p.urlGot)
	case len(p.url.raw) == 0:
		return nil, badParam(path+".url", "%s.url must not be empty.", path)
	}
	if p.tap != nil && p.tap.Took() {
		return p.url.raw, nil
	}
	return p.url.bytes(), nil
}
