import { validateAttachmentName } from '../../attachments/read-attachment.ts';
import { findPath, findShortText } from '../json/find.ts';
import { readAttributeHead } from './any-value.ts';
import { detectEmbeddedJson } from './json-text.ts';
import type { SpanContext } from './span-context.ts';

export interface SpanAttachment {
  readonly name: string;
  readonly mimeType: string;
  /** The content in base64, as a JSON string: a view of the request. */
  readonly content: Buffer;
}

/** Maximum number of attachments of one span. */
const maxAttachments = 1_000;
/** Maximum size of a name or a MIME type in JSON; more than a valid one has. */
const maxTextBytes = 4_096;

/**
 * Reads `langsmith.attachments`: a JSON array of objects with `name`, `content` in base64 and `mime_type`. If one of the
 * attachments is invalid, the attribute stays in the metadata. Source: LangSmith "Trace with OpenTelemetry"; the voice
 * integrations of the Python SDK.
 */
export function consumeAttachments(context: SpanContext): SpanAttachment[] {
  const { span, reader } = context;
  const index = span.find('attachments');
  if (index < 0) return [];
  const { kind, start, end } = readAttributeHead(context, index);
  if (kind !== 'string') return [];
  const attachments: SpanAttachment[] = [];
  let isValid = true;
  const onElement = (_kind: string, from: number, to: number) => {
    const attachment =
      isValid && attachments.length < maxAttachments ? readAttachment(reader.source, from, to) : undefined;
    if (attachment === undefined) isValid = false;
    else attachments.push(attachment);
  };
  if (detectEmbeddedJson(reader.source, start, end, context.maxJsonDepth, onElement) !== 'array' || !isValid) return [];
  span.take(index);
  return attachments;
}

function readAttachment(source: Buffer, start: number, end: number): SpanAttachment | undefined {
  const name = findShortText(source, start, end, 'name', maxTextBytes);
  const mimeType = findShortText(source, start, end, 'mime_type', maxTextBytes) ?? '';
  const content = findPath(source, start, end, ['content']);
  if (name === undefined || validateAttachmentName(name) !== undefined || content?.kind !== 'string') return undefined;
  if (!isBase64(source, content.start + 1, content.end - 1)) return undefined;
  return { name, mimeType, content: source.subarray(content.start, content.end) };
}

/** 1 for the characters of base64, and for the backslash, because some JSON encoders escape slashes and plus signs. */
const isBase64Character = new Uint8Array(256);
for (const character of 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=\\') {
  isBase64Character[character.charCodeAt(0)] = 1;
}

function isBase64(source: Buffer, start: number, end: number): boolean {
  for (let index = start; index < end; index++) if (isBase64Character[source[index]!] === 0) return false;
  return true;
}
