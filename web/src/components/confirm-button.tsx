import { useId, useRef, useState } from 'react';
import { Button } from './button.tsx';
import { showInvisible } from './text.tsx';

/** A button for a change that cannot be undone. It asks for confirmation first. */
export function ConfirmButton({
  label,
  name,
  question,
  typed,
  dismiss = 'Cancel',
  onConfirm,
}: {
  readonly label: string;
  /** Accessible name of the button. It names the object that the button changes. */
  readonly name: string;
  readonly question: string;
  /** Text that the viewer must type to confirm. */
  readonly typed?: string;
  /** Label of the button that cancels. */
  readonly dismiss?: string;
  readonly onConfirm: () => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const dismissButton = useRef<HTMLButtonElement>(null);
  const id = useId();
  const [text, setText] = useState('');
  const wanted = typed === undefined ? '' : showInvisible(typed).trim();
  return (
    <>
      <Button
        kind="quiet danger"
        aria-label={showInvisible(name)}
        onClick={() => {
          setText('');
          dialog.current?.showModal();
          // The first button, which would have the focus, does what a repeated Enter must not do.
          if (typed === undefined) dismissButton.current?.focus();
        }}
      >
        {label}
      </Button>
      <dialog ref={dialog} aria-labelledby={id}>
        <form method="dialog" className="stack">
          <p id={id} className="question">
            {showInvisible(question)}
          </p>
          {typed !== undefined && (
            <label className="field">
              <span>
                Type <strong className="question">{wanted}</strong> to confirm
              </span>
              <input
                className="input"
                autoComplete="off"
                value={text}
                onChange={({ target }) => setText(target.value)}
              />
            </label>
          )}
          <div className="row">
            <Button type="submit" kind="danger" disabled={showInvisible(text).trim() !== wanted} onClick={onConfirm}>
              {label}
            </Button>
            <Button type="submit" ref={dismissButton} formNoValidate>
              {dismiss}
            </Button>
          </div>
        </form>
      </dialog>
    </>
  );
}
