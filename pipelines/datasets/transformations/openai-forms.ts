/**
 * Conversion to the messages and tools of OpenAI, as LangChain's functions `convert_to_openai_messages` and
 * `convert_to_openai_tool` do it. They raise errors for unknown forms; here, unknown forms stay unchanged, and the schema
 * of the dataset decides about them.
 */
import { isJsonObject, type JsonObject } from '../../../infra/json/json-value.ts';
import { type OpenAiMessage, readMessage } from '../../runs/openai-messages.ts';

/**
 * Converts a message or a list of messages from LangChain's serialised form. Messages that have a `role` stay unchanged.
 * LangChain traces the messages of a chat model as a list of prompts; the messages of a single prompt are returned.
 */
export function convertMessages(value: unknown): unknown {
  if (!Array.isArray(value)) return convertMessage(value)[0];
  const [first] = value;
  const isPrompt = value.length === 1 && Array.isArray(first) && first.every(isJsonObject);
  const list: unknown[] = isPrompt ? first : value;
  const converted = list.flatMap(convertMessage);
  const isUnchanged = converted.length === value.length && converted.every((each, index) => each === value[index]);
  return isUnchanged ? value : converted;
}

/** Returns the message, and messages for tool results that are part of its content. */
function convertMessage(value: unknown): unknown[] {
  const message = isJsonObject(value) && typeof value.role !== 'string' ? readMessage(value) : undefined;
  return message === undefined ? [value] : convertContent(message);
}

function convertContent({ content: sent, ...message }: OpenAiMessage): JsonObject[] {
  const { role, ...more } = message;
  if (!Array.isArray(sent)) return [{ role, content: sent ?? '', ...more }];
  const content: unknown[] = [];
  const toolCalls: unknown[] = Array.isArray(more.tool_calls) ? [...more.tool_calls] : [];
  const callIds = new Set(toolCalls.filter(isJsonObject).map(({ id }) => id));
  const results: JsonObject[] = [];
  for (const block of sent.map(toBlock)) {
    if (!isJsonObject(block)) {
      content.push(block);
      continue;
    }
    const call = toToolCall(block);
    if (call) {
      if (!callIds.has(call.id)) toolCalls.push(call);
      callIds.add(call.id);
    } else if (block.type === 'tool_result' && 'content' in block && typeof block.tool_use_id === 'string') {
      const result = { role: 'tool', content: block.content, tool_call_id: block.tool_use_id };
      for (const each of convertContent(result)) results.push(each);
    } else content.push(convertBlock(block));
  }
  const texts = content.flatMap((block) => (isTextBlock(block) ? [block.text] : []));
  const converted = {
    role,
    content: texts.length === content.length ? texts.join('\n') : content,
    ...more,
    ...(toolCalls.length > 0 ? { tool_calls: toolCalls } : {}),
  };
  return content.length === 0 && results.length > 0 ? results : [converted, ...results];
}

/** Lists are no known form. `String` would call members that are named `toString`. */
const toBlock = (block: unknown): unknown =>
  typeof block === 'object' && block !== null ? block : { type: 'text', text: String(block) };

const isTextBlock = (block: unknown): block is { readonly text: string } =>
  isJsonObject(block) && block.type === 'text' && typeof block.text === 'string';

/** Returns the tool call that a block of Anthropic or of OpenAI's Responses contains. */
function toToolCall({ type, id, name, input, call_id, arguments: sent }: JsonObject): JsonObject | undefined {
  if (type === 'tool_use') return { type: 'function', id, function: { name, arguments: JSON.stringify(input) } };
  return type === 'function_call' ? { type: 'function', id: call_id, function: { name, arguments: sent } } : undefined;
}

function convertBlock(block: JsonObject): JsonObject {
  const { type, text, image_url, source, json } = block;
  if (type === 'text' && typeof text === 'string') return { type, text };
  if (type === 'image_url' && image_url !== undefined) return { type, image_url };
  if (type === 'image' && isJsonObject(source) && source.type === 'base64') {
    const { media_type: mediaType, data } = source;
    if (typeof mediaType !== 'string' || typeof data !== 'string') return block;
    return { type: 'image_url', image_url: { url: `data:${mediaType};base64,${data}` } };
  }
  if (json !== undefined) return { type: 'text', text: JSON.stringify(json) };
  return block;
}

/** Tools of OpenAI that are no functions, by their type. */
const ownTools =
  /^(function|file_search|computer|computer_use_preview|code_interpreter|mcp|image_generation|web_search|tool_search|apply_patch|namespace|web_search_preview.*)$/;

/**
 * Converts a tool definition from the form of Anthropic, of Bedrock, of a bare OpenAI function, or of a JSON Schema with a
 * title.
 */
export function convertTool(tool: unknown): unknown {
  if (!isJsonObject(tool) || (typeof tool.type === 'string' && ownTools.test(tool.type))) return tool;
  const definition = toFunction(tool);
  return definition === undefined ? tool : { type: 'function', function: definition };
}

function toFunction(tool: JsonObject): JsonObject | undefined {
  const { name, title, description, toolSpec, ...more } = tool;
  const described = (text: unknown) => (text === undefined ? {} : { description: text });
  if (name !== undefined && 'input_schema' in tool)
    return { name, parameters: tool.input_schema, ...described(description) };
  if (isJsonObject(toolSpec)) {
    const { json } = isJsonObject(toolSpec.inputSchema) ? toolSpec.inputSchema : {};
    return { name: toolSpec.name, parameters: json, ...described(toolSpec.description) };
  }
  if (name !== undefined) {
    const members = ['name', 'description', 'parameters', 'strict'].filter((member) => member in tool);
    return Object.fromEntries(members.map((member) => [member, tool[member]]));
  }
  if (title === undefined) return undefined;
  return { name: title, ...described(description), ...('properties' in more ? { parameters: more } : {}) };
}
