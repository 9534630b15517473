import { type Static, Type } from 'typebox';
import { Value } from 'typebox/value';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';

/** Default config and context of a graph's assistant. */
const defaults = Type.Object(
  {
    tags: Type.Optional(Type.Array(Type.String())),
    metadata: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
    recursion_limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 2_147_483_647 })),
    configurable: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
    context: Type.Optional(Type.Unknown()),
  },
  { additionalProperties: false },
);
const defaultsByGraph = Type.Record(Type.String(), defaults);

type Defaults = Static<typeof defaults>;

export interface DefaultConfig {
  readonly config: Omit<Defaults, 'context'>;
  readonly context?: unknown;
}

const variable = 'LANGGRAPH_CONFIG';

/**
 * Parses the default configs and contexts of graphs from the variable LANGGRAPH_CONFIG in `env` of a langgraph.json:
 * JSON of the form `{graph id: {configurable, …, context}}`. Source: reference/agent-server.md §3.
 *
 * @throws GRAPHS_FILE_INVALID if the text is not valid, or names an unknown graph.
 */
export function parseDefaultConfigs({
  path,
  env,
  graphs,
}: {
  readonly path: string;
  readonly env: Readonly<Record<string, string>>;
  readonly graphs: readonly { readonly graphId: string }[];
}): ReadonlyMap<string, DefaultConfig> {
  const invalid = (reason: string) =>
    runlakeError('GRAPHS_FILE_INVALID', { file: path, location: `env.${variable}`, reason });
  const text = env[variable];
  if (text === undefined || text.trim() === '') return new Map();
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch (error) {
    throw invalid(`it is not JSON: ${(error as Error).message}`);
  }
  if (!Value.Check(defaultsByGraph, content)) {
    const [first] = Value.Errors(defaultsByGraph, content);
    const field = first?.instancePath.slice(1).replaceAll('/', '.');
    throw invalid(`${field ? `${field}: ` : ''}${first?.message ?? 'it does not match the schema'}`);
  }
  const unknown = Object.keys(content).find((id) => !graphs.some(({ graphId }) => graphId === id));
  if (unknown !== undefined) throw invalid(`there is no graph '${unknown}'`);
  return new Map(
    Object.entries(content).map(([graphId, { context, ...config }]) => [
      graphId,
      { config, ...(context !== undefined && { context }) },
    ]),
  );
}
