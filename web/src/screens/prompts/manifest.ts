import { formatExact, isJsonObject, type JsonObject } from '../../components/values/exact-json.ts';
import { findMessages, type Message, type MessagePart } from '../../components/values/messages.ts';

/** The content of a manifest: the messages and the model of a LangChain prompt, or the files of an agent or skill. */

export interface Model {
  /** Class of the model, such as `ChatOpenAI`. */
  readonly name: string;
  readonly settings: JsonObject;
}

export interface PromptContent {
  /** Templates of messages; undefined if the manifest is no prompt. */
  readonly messages: readonly Message[] | undefined;
  /** Names of the values that the prompt needs. */
  readonly variables: readonly string[];
  readonly model: Model | undefined;
  /** JSON Schema of the outputs. */
  readonly schema: JsonObject | undefined;
}

export interface DirectoryEntry {
  readonly path: string;
  /** The text of a file, or the name of the agent or skill to which a link refers. */
  readonly text: string;
  readonly linkTo?: string | undefined;
}

/** Reads a prompt with or without a model. The model comes after the prompt in a `RunnableSequence`. */
export function readPrompt(manifest: unknown): PromptContent {
  const kwargs = isJsonObject(manifest) && isJsonObject(manifest.kwargs) ? manifest.kwargs : {};
  const prompt = isJsonObject(kwargs.first) ? kwargs.first : manifest;
  const fields = isJsonObject(prompt) ? (isJsonObject(prompt.kwargs) ? prompt.kwargs : prompt) : {};
  const { input_variables: variables, schema_: structured, schema } = fields;
  return {
    messages: readMessages(fields),
    variables: Array.isArray(variables) ? variables.map(String) : [],
    model: readModel(kwargs.last),
    schema: isJsonObject(structured) ? structured : isJsonObject(schema) ? schema : undefined,
  };
}

function readMessages(fields: JsonObject): readonly Message[] | undefined {
  if (typeof fields.template === 'string')
    return [{ role: 'template', parts: [{ kind: 'text', text: fields.template }], toolCalls: [] }];
  if (!Array.isArray(fields.messages) || fields.messages.length === 0) return undefined;
  return fields.messages.map(readMessage);
}

const roles: readonly (readonly [RegExp, string])[] = [
  [/^system/i, 'system'],
  [/^human/i, 'user'],
  [/^(ai|assistant)/i, 'assistant'],
  [/^tool/i, 'tool'],
  [/^messagesplaceholder/i, 'placeholder'],
];

function readMessage(message: unknown): Message {
  const kwargs = isJsonObject(message) && isJsonObject(message.kwargs) ? message.kwargs : {};
  const id = isJsonObject(message) && Array.isArray(message.id) ? String(message.id.at(-1)) : '';
  const role = roles.find(([pattern]) => pattern.test(id))?.[1];
  if (typeof kwargs.variable_name === 'string')
    return { role: 'placeholder', parts: [{ kind: 'text', text: `{${kwargs.variable_name}}` }], toolCalls: [] };
  if (kwargs.prompt !== undefined)
    return {
      role: typeof kwargs.role === 'string' ? kwargs.role : (role ?? 'user'),
      parts: [kwargs.prompt].flat().map(readPart),
      toolCalls: [],
    };
  const [found] = findMessages([message]) ?? [];
  return found ?? { role: role ?? 'message', parts: [{ kind: 'other', value: message }], toolCalls: [] };
}

function readPart(part: unknown): MessagePart {
  const fields = isJsonObject(part) && isJsonObject(part.kwargs) ? part.kwargs : part;
  return isJsonObject(fields) && typeof fields.template === 'string'
    ? { kind: 'text', text: fields.template }
    : { kind: 'other', value: isJsonObject(fields) && fields.template !== undefined ? fields.template : part };
}

/** Reads a model, or a binding of tools and settings to a model. */
function readModel(value: unknown): Model | undefined {
  if (!isJsonObject(value)) return undefined;
  const { id, kwargs } = value;
  const settings = isJsonObject(kwargs) ? kwargs : {};
  const name = Array.isArray(id) ? String(id.at(-1)) : 'model';
  if (!isJsonObject(settings.bound)) return { name, settings };
  const bound = readModel(settings.bound);
  return {
    name: bound?.name ?? name,
    settings: { ...bound?.settings, ...(isJsonObject(settings.kwargs) ? settings.kwargs : {}) },
  };
}

/** Reads the files and links of an agent or skill, in the order of their paths. */
export function readDirectory(manifest: unknown): readonly DirectoryEntry[] {
  const entries = isJsonObject(manifest) ? Object.entries(manifest) : [];
  return entries
    .map(([path, entry]): DirectoryEntry => {
      if (!isJsonObject(entry)) return { path, text: formatExact(entry) };
      if (entry.type === 'file') return { path, text: String(entry.content ?? '') };
      return { path, text: formatExact(entry), linkTo: String(entry.repo_handle ?? '') };
    })
    .sort((a, b) => (a.path < b.path ? -1 : 1));
}

/** Returns the parts of a manifest as texts by name, to compare two of them. */
export function toSections(manifest: unknown, isDirectory: boolean): ReadonlyMap<string, string> {
  if (isDirectory) return new Map(readDirectory(manifest).map(({ path, text }) => [path, text]));
  const { messages, model, schema } = readPrompt(manifest);
  const sections = new Map<string, string>();
  if (messages) sections.set('Messages', messages.map(toText).join('\n\n'));
  if (model) sections.set('Model', `${model.name}\n${formatExact(model.settings)}`);
  if (schema) sections.set('Output schema', formatExact(schema));
  return sections;
}

function toText({ role, name, parts, toolCalls }: Message): string {
  const texts = parts.map((part) =>
    part.kind === 'text' ? part.text : part.kind === 'image' ? part.url : formatExact(part.value),
  );
  const calls = toolCalls.map((call) => `${call.name} ${formatExact(call.arguments)}`);
  return [`${role}${name === undefined ? '' : ` ${name}`}:`, ...texts, ...calls].join('\n');
}
