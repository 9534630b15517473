/** What the variables of a project's own tracing say, `LANGSMITH_*` or `LANGCHAIN_*` as stock clients read them. */
export interface GraphTracing {
  /** `own`: the project sends its runs itself, to where it says; `off`: nothing is to be traced. */
  readonly state: 'own' | 'off' | 'unsaid';
  readonly hidesInputs: boolean;
  readonly hidesOutputs: boolean;
}

/** Of the process that asks, as its variables are now: a project may set them when it is imported. */
export function graphTracing(environment: Readonly<Record<string, string | undefined>> = process.env): GraphTracing {
  const says = (name: string, value: string) =>
    environment[`LANGSMITH_${name}`] === value || environment[`LANGCHAIN_${name}`] === value;
  const state = (value: string) => says('TRACING', value) || says('TRACING_V2', value);
  return {
    state: state('true') ? 'own' : state('false') ? 'off' : 'unsaid',
    hidesInputs: says('HIDE_INPUTS', 'true'),
    hidesOutputs: says('HIDE_OUTPUTS', 'true'),
  };
}
