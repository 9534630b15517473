import { useState } from 'react';
import { showInvisible } from './text.tsx';

/** A button that copies a text to the clipboard and briefly confirms it. */
export function CopyButton({
  label,
  text,
  className = 'button',
}: {
  readonly label: string;
  readonly text: () => string;
  readonly className?: string;
}) {
  const [state, setState] = useState<'idle' | 'copied' | 'failed'>('idle');
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text());
      setState('copied');
    } catch {
      setState('failed');
    }
    setTimeout(() => setState('idle'), 1500);
  };
  return (
    <button type="button" className={className} onClick={() => void copy()}>
      <span aria-live="polite">{state === 'idle' ? label : state === 'copied' ? 'Copied' : 'Not copied'}</span>
    </button>
  );
}

/** A block of code with a button that copies it. */
export function CodeBlock({ code, label }: { readonly code: string; readonly label: string }) {
  return (
    <div className="code-block">
      <pre tabIndex={0} role="region" aria-label={label}>
        {showInvisible(code)}
      </pre>
      <CopyButton label="Copy" text={() => code} />
    </div>
  );
}
