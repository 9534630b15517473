import { A2aError } from './a2a-error.ts';

type Values = Readonly<Record<string, unknown>>;

export interface MessageContent {
  /** Of all text parts, one a line. */
  readonly text: string | undefined;
  /** Of all data parts, later ones over earlier ones. */
  readonly data: Values | undefined;
}

/** @throws A2aError for files, and for what is no part. */
export function contentOf(parts: readonly { readonly kind: string }[]): MessageContent {
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
 * What a graph takes: data as it is, text as one more message. That gets an id of the graph's making: one that a client uses twice
 * would replace what was said before.
 */
export function inputOf({ text, data }: MessageContent, { role }: { readonly role: string }) {
  if (text === undefined) return data;
  const before = Array.isArray(data?.messages) ? data.messages : [];
  return { ...data, messages: [...before, { role: role === 'user' ? 'user' : 'assistant', content: text }] };
}

/** The answer to an interrupt: data `{resume: [{id, value}]}` for several of them, else `resume` or all of the data, else the text. */
export function resumeOf({ text, data }: MessageContent): unknown {
  if (data === undefined) return text;
  const resume = 'resume' in data ? data.resume : data;
  if (!Array.isArray(resume) || !resume.every((one) => isObject(one) && typeof one.id === 'string')) return resume;
  return Object.fromEntries(resume.map(({ id, value }) => [id, value]));
}

export function isObject(value: unknown): value is Values {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
