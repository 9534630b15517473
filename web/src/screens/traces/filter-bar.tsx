import { useQuery } from '@tanstack/react-query';
import { type KeyboardEvent, useDeferredValue, useEffect, useId, useMemo, useRef, useState } from 'react';
import { readFrom } from '../../api/client.ts';
import { Button } from '../../components/button.tsx';
import { Icon } from '../../components/icon.tsx';
import { showInvisible } from '../../components/text.tsx';
import { completeFilter, findPosition, toExpression } from './filter-language.ts';
import type { Facet } from './use-runs.ts';

/** Input for an expression of the filter language, with completion and the position of an error. */
export function FilterBar({
  filter = '',
  facets,
  onChange,
}: {
  readonly filter?: string | undefined;
  readonly facets: readonly Facet[];
  readonly onChange: (filter: string | undefined) => void;
}) {
  const [text, setText] = useState(filter);
  const [caret, setCaret] = useState(0);
  const [isOpen, setOpen] = useState(false);
  const [picked, setPicked] = useState(-1);
  const input = useRef<HTMLInputElement>(null);
  const id = useId();
  useEffect(() => setText(filter), [filter]);

  const values = useMemo(() => groupByField(facets), [facets]);
  const { start, options } = completeFilter(text, caret, values);
  const isListed = isOpen && options.length > 0 && text !== '';

  const expression = toExpression(useDeferredValue(text));
  const problem = useProblem(expression);

  const insert = (option: string) => {
    const next = text.slice(0, start) + option + text.slice(caret);
    setText(next);
    setPicked(-1);
    const at = start + option.length;
    requestAnimationFrame(() => {
      input.current?.setSelectionRange(at, at);
      setCaret(at);
    });
  };
  const apply = (next: string) => {
    setOpen(false);
    setText(next);
    onChange(next === '' ? undefined : next);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const option = isListed ? options[picked] : undefined;
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      event.preventDefault();
      setOpen(true);
      const count = options.length;
      if (count > 0) setPicked((picked + (event.key === 'ArrowDown' ? 1 : count)) % count);
    } else if ((event.key === 'Enter' || event.key === 'Tab') && option !== undefined) {
      event.preventDefault();
      insert(option);
    } else if (event.key === 'Enter') apply(toExpression(text));
    else if (event.key === 'Escape') setOpen(false);
  };
  return (
    <div className="filter-bar">
      <div className="row">
        <input
          ref={input}
          className="input mono filter-input"
          role="combobox"
          aria-label="Filter"
          aria-expanded={isListed}
          aria-controls={`${id}-options`}
          aria-activedescendant={isListed && picked >= 0 ? `${id}-${picked}` : undefined}
          aria-invalid={problem !== undefined}
          aria-describedby={`${id}-problem`}
          autoComplete="off"
          spellCheck={false}
          placeholder="Text to search, or an expression such as gt(latency, 2)"
          data-shortcut="/"
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            setCaret(event.target.selectionStart ?? event.target.value.length);
            setPicked(-1);
            setOpen(true);
          }}
          onSelect={(event) => setCaret(event.currentTarget.selectionStart ?? 0)}
          onBlur={() => setOpen(false)}
          onKeyDown={onKeyDown}
        />
        {text !== '' && (
          <Button kind="quiet icon" aria-label="Clear the filter" onClick={() => apply('')}>
            <Icon name="close" />
          </Button>
        )}
      </div>
      <div id={`${id}-options`} role="listbox" aria-label="Completions" className="filter-options" hidden={!isListed}>
        {options.map((option, index) => (
          <div
            key={option}
            id={`${id}-${index}`}
            role="option"
            tabIndex={-1}
            aria-selected={index === picked}
            className="option mono"
            onPointerDown={(event) => {
              event.preventDefault();
              insert(option);
            }}
          >
            {option}
          </div>
        ))}
      </div>
      <div id={`${id}-problem`} className="filter-problem" role="status">
        {problem !== undefined && !isListed && <Problem expression={expression} problem={problem} />}
      </div>
    </div>
  );
}

function groupByField(facets: readonly Facet[]): Map<string, string[]> {
  const values = new Map<string, string[]>();
  for (const { key, value } of facets) {
    const field = key === 'tag' ? 'tags' : key;
    values.set(field, [...(values.get(field) ?? []), value]);
  }
  return values;
}

/** Returns the first error of an expression. */
function useProblem(expression: string): string | undefined {
  const check = useQuery({
    queryKey: ['filter-check', expression],
    ...readFrom('post', '/api/v1/runs/query/validate', { body: { filter: expression } }),
    enabled: expression !== '',
    staleTime: Number.POSITIVE_INFINITY,
  });
  return expression === '' ? undefined : check.data?.errors[0]?.message;
}

function Problem({ expression, problem }: { readonly expression: string; readonly problem: string }) {
  const position = findPosition(problem);
  return (
    <>
      {position !== undefined && (
        <code>
          {showInvisible(expression.slice(Math.max(0, position - 20), position))}
          <mark>{showInvisible(expression.slice(position, position + 1)) || '␣'}</mark>
          {showInvisible(expression.slice(position + 1, position + 20))}
        </code>
      )}
      <span className="error-text">{problem}</span>
    </>
  );
}
