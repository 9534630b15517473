import { useId, useRef } from 'react';
import { showInvisible } from './text.tsx';

/** A button for a change that cannot be undone: it asks before. */
export function ConfirmButton({
  label,
  name,
  question,
  dismiss = 'Cancel',
  onConfirm,
}: {
  readonly label: string;
  /** Accessible name of the button, with what it changes. */
  readonly name: string;
  readonly question: string;
  /** Label of the button that changes nothing. */
  readonly dismiss?: string;
  readonly onConfirm: () => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  return (
    <>
      <button
        type="button"
        className="button quiet danger"
        aria-label={showInvisible(name)}
        onClick={() => dialog.current?.showModal()}
      >
        {label}
      </button>
      <dialog ref={dialog} aria-labelledby={id}>
        <form method="dialog" className="stack">
          <p id={id} className="question">
            {showInvisible(question)}
          </p>
          <div className="row">
            <button type="submit" className="button danger" onClick={onConfirm}>
              {label}
            </button>
            <button type="submit" className="button">
              {dismiss}
            </button>
          </div>
        </form>
      </dialog>
    </>
  );
}
