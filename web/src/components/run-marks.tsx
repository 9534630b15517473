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
  const kind = status?.toLowerCase() as keyof typeof states;
  return <StatusMark {...(states[kind] ?? states.pending)} kind={kind} isShort={isShort} />;
}

/** A status as a sign and a word, in the colour of its kind. */
export function StatusMark({
  sign,
  label,
  kind,
  isShort = false,
}: {
  readonly sign: string;
  readonly label: string;
  readonly kind: 'success' | 'error' | 'pending' | '';
  readonly isShort?: boolean;
}) {
  return (
    <span className={`status ${kind}`} title={isShort ? label : undefined}>
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
