import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { useDeferredValue, useEffect, useId, useState } from 'react';
import { call, readFrom } from '../../api/client.ts';

const suggestions = 20;

/** An input for the name of a project, with suggestions. Calls `onChange` with the id when the name is one of a project. */
export function ProjectInput({
  projectId,
  onChange,
}: {
  readonly projectId: string | undefined;
  readonly onChange: (projectId: string | undefined) => void;
}) {
  const id = useId();
  const [text, setText] = useState('');
  const chosen = useQuery({
    queryKey: ['project', projectId],
    ...readFrom('get', '/api/v1/sessions/{session_id}', { path: { session_id: projectId ?? '' } }),
    enabled: projectId !== undefined,
  });
  const chosenName = chosen.data?.name;
  useEffect(() => {
    if (chosenName !== undefined) setText(chosenName);
  }, [chosenName]);
  const wanted = useDeferredValue(text);
  const found = useQuery({
    queryKey: ['project-suggestions', wanted],
    queryFn: async ({ signal }) => {
      const read = (name: { name_contains?: string; name?: string }) =>
        call('get', '/api/v1/sessions', { query: { limit: suggestions, reference_free: true, ...name }, signal });
      if (wanted === '') return read({});
      // More projects than are suggested may contain the name of the wanted one.
      const [exact, similar] = await Promise.all([read({ name: wanted }), read({ name_contains: wanted })]);
      return [...exact, ...similar.filter(({ name }) => name !== wanted)].slice(0, suggestions);
    },
    placeholderData: keepPreviousData,
    staleTime: 30_000,
  });
  const match = found.data?.find(({ name }) => name === text)?.id;
  useEffect(() => {
    if (match !== undefined && match !== projectId) onChange(match);
  });
  const problem = chosen.error ?? found.error;
  return (
    <div className="field">
      <label htmlFor={id}>Project</label>
      <input
        id={id}
        className="input"
        list={`${id}-projects`}
        required
        autoComplete="off"
        value={text}
        aria-describedby={`${id}-problem`}
        onChange={({ target }) => {
          setText(target.value);
          if (target.value !== chosenName) onChange(undefined);
        }}
      />
      <datalist id={`${id}-projects`}>
        {found.data?.map(({ id: value, name }) => (
          <option key={value} value={name} />
        ))}
      </datalist>
      <span id={`${id}-problem`} className="error-text" role="status">
        {problem?.message ??
          (found.isSuccess && !found.isPlaceholderData && found.data.length === 0 && text !== ''
            ? 'No project has this name.'
            : '')}
      </span>
    </div>
  );
}
