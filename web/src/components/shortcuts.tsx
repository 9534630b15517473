import { useEffect, useRef, useState } from 'react';
import { Button } from './button.tsx';

export interface Shortcut {
  /** Unset: the label of another shortcut also describes this key. */
  readonly label?: string;
  /** Unset: the shortcut is only explained here; another component handles it. */
  readonly run?: () => void;
}

/** Shortcuts of the screens that are shown, for the list that `?` opens. */
const shown = new Set<{ readonly current: Readonly<Record<string, Shortcut>> }>();

function isTyping(event: KeyboardEvent): boolean {
  return event.target instanceof HTMLElement && event.target.matches('input, textarea, select, [contenteditable]');
}

/** Runs a shortcut when its key is pressed outside of inputs, without a modifier, and while no dialog is open. */
export function useShortcuts(shortcuts: Readonly<Record<string, Shortcut>>): void {
  const current = useRef(shortcuts);
  current.current = shortcuts;
  useEffect(() => {
    shown.add(current);
    const onKey = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.metaKey || event.ctrlKey || event.altKey || isTyping(event)) return;
      if (document.querySelector('dialog[open]') !== null) return;
      const shortcut = current.current[event.key];
      if (!shortcut?.run) return;
      event.preventDefault();
      shortcut.run();
    };
    document.addEventListener('keydown', onKey);
    return () => {
      shown.delete(current);
      document.removeEventListener('keydown', onKey);
    };
  }, []);
}

/** Handles `/`, which goes to the search of the screen, and `?`, which lists all shortcuts. */
export function ShortcutList() {
  const dialog = useRef<HTMLDialogElement>(null);
  const [all, setAll] = useState<readonly (readonly [string, Shortcut])[]>([]);
  useShortcuts({
    '/': {
      label: 'Go to the search or filter',
      run: () => document.querySelector<HTMLElement>('[data-shortcut="/"]')?.focus(),
    },
    '?': {
      label: 'Show this list',
      run: () => {
        const listed = [...shown].flatMap((each) => Object.entries(each.current));
        setAll(listed.filter(([, { label }]) => label !== undefined));
        dialog.current?.showModal();
      },
    },
  });
  return (
    <dialog ref={dialog} aria-labelledby="shortcuts-title">
      <div className="stack">
        <h2 id="shortcuts-title">Keyboard</h2>
        <dl className="shortcuts">
          {all.map(([key, { label }]) => (
            <div key={key} className="row">
              <dt>
                <kbd>{key}</kbd>
              </dt>
              <dd>{label}</dd>
            </div>
          ))}
        </dl>
        <form method="dialog">
          <Button type="submit">Close</Button>
        </form>
      </div>
    </dialog>
  );
}

/** Returns a ref for a form that a button opens: its first field gets the focus, which the button had. */
export function useFirstFieldFocus() {
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => form.current?.querySelector<HTMLElement>('input, select, textarea')?.focus(), []);
  return form;
}
