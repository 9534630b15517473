import { useEffect } from 'react';
import { showInvisible, Value } from './text.tsx';

const application = 'Runlake';
const maxLength = 100;

/** The heading of a screen, which is also the title of the page in tabs and in the history of the browser. */
export function Heading({ text }: { readonly text: string }) {
  useEffect(() => {
    document.title = `${showInvisible(text.slice(0, maxLength))} · ${application}`;
    return () => {
      document.title = application;
    };
  }, [text]);
  return (
    <h1>
      <Value text={text} />
    </h1>
  );
}
