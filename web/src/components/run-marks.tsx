import './run-marks.css';

const states = {
  success: { sign: '✓', label: 'ok' },
  error: { sign: '✕', label: 'error' },
  pending: { sign: '…', label: 'runs' },
} as const;

/** Status of a run as a sign and a word. */
export function Status({
  status,
  isShort = false,
}: {
  readonly status: string | undefined;
  readonly isShort?: boolean;
}) {
  const key = status?.toLowerCase() as keyof typeof states;
  const { sign, label } = states[key] ?? states.pending;
  return (
    <span className={`status ${key}`} title={isShort ? label : undefined}>
      <span aria-hidden="true">{sign}</span>
      <span className={isShort ? 'visually-hidden' : undefined}>{label}</span>
    </span>
  );
}

const short: Readonly<Record<string, string>> = { retriever: 'retr', embedding: 'embed' };

/** Type of a run as a short word. */
export function RunType({ type }: { readonly type: string | undefined }) {
  const name = type?.toLowerCase() ?? 'chain';
  return (
    <span className={`run-type ${name}`} title={name}>
      {short[name] ?? name}
    </span>
  );
}
