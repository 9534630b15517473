/**
 * The tracing configuration that a project sets with `LANGSMITH_*` or `LANGCHAIN_*` variables. The variables are
 * interpreted as in stock clients.
 */
export interface GraphTracing {
  /**
   * `own`: the project sends its runs to its own endpoint. `off`: the project disables tracing. `unspecified`: the
   * project does neither.
   */
  readonly state: 'own' | 'off' | 'unspecified';
  readonly hidesInputs: boolean;
  readonly hidesOutputs: boolean;
}

/**
 * Reads the tracing variables of the calling process. They are read at the time of the call, because a project may set
 * them when it is imported.
 */
export function readGraphTracing(
  environment: Readonly<Record<string, string | undefined>> = process.env,
): GraphTracing {
  const hasValue = (name: string, value: string) =>
    environment[`LANGSMITH_${name}`] === value || environment[`LANGCHAIN_${name}`] === value;
  const state = (value: string) => hasValue('TRACING', value) || hasValue('TRACING_V2', value);
  return {
    state: state('true') ? 'own' : state('false') ? 'off' : 'unspecified',
    hidesInputs: hasValue('HIDE_INPUTS', 'true'),
    hidesOutputs: hasValue('HIDE_OUTPUTS', 'true'),
  };
}
