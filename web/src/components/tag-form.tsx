import { useMutation } from '@tanstack/react-query';
import type { FormEvent } from 'react';
import { SubmitButton } from './button.tsx';
import { readForm } from './read-form.ts';
import { Problem } from './states.tsx';

/** A form that moves a tag to an object of the kind `what`, such as a version. Only one object can have the tag. */
export function TagForm({
  what,
  onSet,
  onDone,
}: {
  readonly what: string;
  readonly onSet: (tag: string) => Promise<unknown>;
  readonly onDone: () => void;
}) {
  const set = useMutation({ mutationFn: onSet, onSuccess: onDone });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    set.mutate(readForm(event)('tag'));
  };
  return (
    <form className="stack" onSubmit={submit} aria-label="Set a tag">
      <p className="muted">A tag that another {what} has moves to this one.</p>
      <div className="row">
        <input className="input" name="tag" aria-label="Tag" placeholder="Tag, such as production" required />
        <SubmitButton disabled={set.isPending}>Set</SubmitButton>
      </div>
      <Problem message={set.error?.message} />
    </form>
  );
}
