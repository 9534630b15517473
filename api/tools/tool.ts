import type { CallToolResult, Tool as ListedTool } from '@modelcontextprotocol/sdk/types.js';
import type { MainApi } from './main-api.ts';
import { inputSchema, type Parameters, type ValuesOf } from './parameters.ts';

/** Dependencies of a tool. */
export interface ToolContext {
  readonly api: MainApi;
  /** URL of the main API, for texts that explain how to use it. */
  readonly endpoint: string;
}

export type JsonValue = Readonly<Record<string, unknown>>;

/** A tool: its description for clients and its implementation. */
export interface Tool<P extends Parameters = Parameters> {
  readonly name: string;
  readonly title: string;
  /** For a language model: what the tool returns, and when to use it. */
  readonly description: string;
  readonly parameters: P;
  /** JSON Schema of the members of the result. */
  readonly output: JsonValue;
  /** Prefix of error messages, equal to that of the original tool server. */
  readonly failurePrefix?: string;
  /** Returns the members of the result. A text becomes the member `result`. @throws RunlakeError */
  readonly run: (values: ValuesOf<P>, context: ToolContext) => Promise<JsonValue | string>;
}

/** Declares a tool; the types of its values are derived from its parameters. */
export function defineTool<const P extends Parameters>(tool: Tool<P>): Tool {
  return tool as unknown as Tool;
}

/** Tools only read what Runlake stores. */
const annotations = { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false } as const;

/** Members that the result of every tool may have. */
const everyOutput = {
  error: { type: 'string', description: 'Why the call failed. Without it, the call succeeded.' },
  note: { type: 'string', description: 'How the call was changed, if it was.' },
};

/** The tool as `tools/list` returns it. */
export function listTool({ name, title, description, parameters, output }: Tool): ListedTool {
  return {
    name,
    title,
    description,
    inputSchema: inputSchema(parameters),
    outputSchema: {
      type: 'object',
      properties: { ...output, ...everyOutput } as Record<string, object>,
      additionalProperties: true,
    },
    annotations: { title, ...annotations },
  };
}

/** The result of a call. Clients of the original read the text, others the structured content. */
export function buildResult(output: JsonValue | string): CallToolResult {
  if (typeof output === 'string')
    return { content: [{ type: 'text', text: output }], structuredContent: { result: output } };
  return { content: [{ type: 'text', text: JSON.stringify(output) }], structuredContent: { ...output } };
}

/** The result of a failed call, as clients of the original read it. */
export function buildFailure(error: string): CallToolResult {
  return { ...buildResult({ error }), isError: true };
}
