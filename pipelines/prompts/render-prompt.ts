/** Prompts of the hub as messages: the templates of a manifest, filled with values. */
import { parseTemplate, renderTemplate, type TemplateFormat } from '@langchain/core/prompts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { isJsonObject, type JsonObject } from '../../infra/json/json-value.ts';
import { toText } from '../runs/openai-messages.ts';

export interface PromptMessage {
  readonly role: 'system' | 'user' | 'assistant';
  readonly text: string;
}

export interface PromptVariable {
  readonly name: string;
  /** False for a list of messages, which may be empty. */
  readonly required: boolean;
}

/** A message of a prompt, before its values are filled in. */
type Part =
  | { readonly role: PromptMessage['role']; readonly template: string; readonly format: TemplateFormat }
  | { readonly role: PromptMessage['role']; readonly text: string }
  | { readonly placeholder: string };

/** Roles by the class of a message or of its template. */
const rolesByClass: readonly (readonly [RegExp, PromptMessage['role']])[] = [
  [/^System/, 'system'],
  [/^(AI|Assistant)/, 'assistant'],
];

/**
 * Maximum number of characters of the mustache templates of a prompt. Templates of prompts that have more, or more than
 * 200 white-space characters in a row, are plain text: the time to parse white space is quadratic.
 */
const maxMustacheCharacters = 64 * 1024;
const longWhiteSpace = /\s{201}/;
/** Maximum number of variables in the other templates of a prompt together. Those of prompts with more are plain text. */
const maxVariables = 10_000;

/**
 * Maximum number of characters of the messages of a prompt together. A template can repeat a long value very often;
 * until the message is read, it is a rope, which takes memory only for its parts.
 */
const maxMessageCharacters = 16 * 1024 ** 2;

/** Returns the variables of a prompt, in order of their use. A template that is too large has none. */
export function listPromptVariables(manifest: JsonObject): PromptVariable[] {
  const variables = new Map<string, PromptVariable>();
  for (const part of readParts(manifest)) {
    if ('placeholder' in part) variables.set(part.placeholder, { name: part.placeholder, required: false });
    if (!('template' in part)) continue;
    for (const name of findVariables(part.template, part.format)) variables.set(name, { name, required: true });
  }
  const partials = readPartials(manifest);
  return [...variables.values()].filter(({ name }) => !Object.hasOwn(partials, name));
}

/**
 * Fills in the values of a prompt. The value of a list of messages is text, which becomes one message of the user. A
 * template that is too large becomes a message as it is.
 *
 * @throws BAD_REQUEST if a value is missing, a template is not valid, or the messages are too long.
 */
export function renderPrompt(manifest: JsonObject, values: Readonly<Record<string, string>>): PromptMessage[] {
  const all = { ...readPartials(manifest), ...values };
  const messages: PromptMessage[] = [];
  let characters = 0;
  for (const part of readParts(manifest)) {
    const message = renderPart(part, all);
    if (message === undefined) continue;
    characters += message.text.length;
    if (characters > maxMessageCharacters) throw createTooLongError();
    messages.push(message);
  }
  return messages;
}

const createTooLongError = () =>
  runlakeError('BAD_REQUEST', {
    reason: `The messages of the prompt have more than ${maxMessageCharacters} characters.`,
  });

function renderPart(part: Part, values: Record<string, string>): PromptMessage | undefined {
  if ('placeholder' in part) {
    const text = Object.hasOwn(values, part.placeholder) ? values[part.placeholder] : undefined;
    return text ? { role: 'user', text } : undefined;
  }
  if ('text' in part) return part;
  const { role, template, format } = part;
  const missing = findVariables(template, format).filter((name) => !Object.hasOwn(values, name));
  if (missing.length > 0)
    throw runlakeError('BAD_REQUEST', {
      reason: `The prompt needs a value for ${missing.join(', ').slice(0, 1_000)}.`,
    });
  return { role, text: fill(template, format, values) };
}

function fill(template: string, format: TemplateFormat, values: Record<string, string>): string {
  try {
    return renderTemplate(template, format, values);
  } catch (error) {
    // V8 limits the length of a string.
    if (error instanceof RangeError && error.message === 'Invalid string length') throw createTooLongError();
    throw runlakeError('BAD_REQUEST', { reason: 'The template of the prompt is not valid.' });
  }
}

function findVariables(template: string, format: TemplateFormat): string[] {
  try {
    const names = parseTemplate(template, format).flatMap((node) => (node.type === 'variable' ? [node.name] : []));
    // A name with dots reads a member of a value.
    return [...new Set(names.map((name) => name.split('.')[0] as string))];
  } catch {
    return [];
  }
}

/** The prompt of a manifest: a chain of a prompt and a model begins with it. */
function findPrompt(manifest: JsonObject): JsonObject {
  const { kwargs } = manifest;
  return isJsonObject(kwargs) && isJsonObject(kwargs.first) ? findPrompt(kwargs.first) : manifest;
}

function readPartials(manifest: JsonObject): Record<string, string> {
  const { kwargs } = findPrompt(manifest);
  const partials = isJsonObject(kwargs) && isJsonObject(kwargs.partial_variables) ? kwargs.partial_variables : {};
  return Object.fromEntries(Object.entries(partials).map(([name, value]) => [name, toText(value)]));
}

/** Returns the parts of a prompt. Templates that would take long to parse are plain text. */
function readParts(manifest: JsonObject): Part[] {
  const parts = readAllParts(manifest);
  let mustacheCharacters = 0;
  let variables = 0;
  for (const part of parts) {
    if (!('template' in part)) continue;
    if (part.format === 'mustache') mustacheCharacters += part.template.length;
    else variables += part.template.replaceAll('{{', '').split('{').length - 1;
  }
  const isTooLarge = { mustache: mustacheCharacters > maxMustacheCharacters, 'f-string': variables > maxVariables };
  return parts.map((part) => {
    if (!('template' in part)) return part;
    const { role, template, format } = part;
    const isSlow = isTooLarge[format] || (format === 'mustache' && longWhiteSpace.test(template));
    return isSlow ? { role, text: template } : part;
  });
}

function readAllParts(manifest: JsonObject): Part[] {
  const prompt = findPrompt(manifest);
  const fields = isJsonObject(prompt.kwargs) ? prompt.kwargs : prompt;
  if (Array.isArray(fields.messages)) return fields.messages.filter(isJsonObject).map(readPart);
  if (typeof fields.template === 'string') return [toTemplate('user', fields)];
  return [{ role: 'user', text: JSON.stringify(manifest) }];
}

function readPart(message: JsonObject): Part {
  const fields = isJsonObject(message.kwargs) ? message.kwargs : message;
  const classNames = [Array.isArray(message.id) ? message.id.at(-1) : undefined, message.role, fields.role];
  const className = classNames.find((name) => typeof name === 'string') ?? '';
  const role = rolesByClass.find(([pattern]) => pattern.test(capitalise(className)))?.[1] ?? 'user';
  if (typeof fields.variable_name === 'string') return { placeholder: fields.variable_name };
  const template = [fields.prompt]
    .flat()
    .map((part) => (isJsonObject(part) && isJsonObject(part.kwargs) ? part.kwargs : part));
  const [first] = template;
  if (isJsonObject(first) && typeof first.template === 'string') {
    // A message of several parts has one template for each.
    const texts = template.flatMap((part) =>
      isJsonObject(part) && typeof part.template === 'string' ? [part.template] : [],
    );
    return { ...toTemplate(role, first), template: texts.join('\n') };
  }
  return { role, text: fields.content === undefined ? JSON.stringify(message) : toText(fields.content) };
}

function toTemplate(role: PromptMessage['role'], { template, template_format: format }: JsonObject) {
  return {
    role,
    template: String(template),
    format: format === 'mustache' ? ('mustache' as const) : ('f-string' as const),
  };
}

const capitalise = (word: string) => word.charAt(0).toUpperCase() + word.slice(1);
