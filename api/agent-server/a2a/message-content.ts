import { A2aError } from './a2a-error.ts';

type Values = Readonly<Record<string, unknown>>;

export interface MessageContent {
  /** All text parts, separated by line feeds. */
  readonly text: string | undefined;
  /** All data parts merged; later ones overwrite earlier ones. */
  readonly data: Values | undefined;
}

/** @throws A2aError for file parts and for invalid parts. */
export function readMessageContent(parts: readonly { readonly kind: string }[]): MessageContent {
  const texts: string[] = [];
  let data: Values | undefined;
  for (const part of parts) {
    if (part.kind === 'file') throw new A2aError('contentNotSupported', 'Parts that are files are not supported.');
    if (part.kind === 'text' && 'text' in part && typeof part.text === 'string') texts.push(part.text);
    else if (part.kind === 'data' && 'data' in part && isObject(part.data)) data = { ...data, ...part.data };
    else throw new A2aError('invalidParams', 'params.message.parts: must be text with `text` or data with `data`');
  }
  return { text: texts.length === 0 ? undefined : texts.join('\n'), data };
}

/**
 * Builds the input of the graph: the data, with the text as an additional message. The graph assigns the id of that
 * message, because a message with an id that was used before replaces the earlier message.
 */
export function buildInput({ text, data }: MessageContent, { role }: { readonly role: string }) {
  if (text === undefined) return data;
  const before = Array.isArray(data?.messages) ? data.messages : [];
  return { ...data, messages: [...before, { role: role === 'user' ? 'user' : 'assistant', content: text }] };
}

/**
 * Builds the value that resumes an interrupt: the data `{resume: [{id, value}]}` for several interrupts, otherwise
 * `resume` or the whole data, otherwise the text.
 */
export function buildResumeValue({ text, data }: MessageContent): unknown {
  if (data === undefined) return text;
  const resume = 'resume' in data ? data.resume : data;
  if (!Array.isArray(resume) || !resume.every((one) => isObject(one) && typeof one.id === 'string')) return resume;
  return Object.fromEntries(resume.map(({ id, value }) => [id, value]));
}

export function isObject(value: unknown): value is Values {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
