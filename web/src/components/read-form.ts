import type { FormEvent } from 'react';

/** Lets the page handle the submission of a form. Returns a function that reads a field without the spaces around it. */
export function readForm(event: FormEvent<HTMLFormElement>): (name: string) => string {
  event.preventDefault();
  const data = new FormData(event.currentTarget);
  return (name) => String(data.get(name) ?? '').trim();
}
