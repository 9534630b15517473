import { useStreamContext } from '@langchain/langgraph-sdk/react-ui';
import { useState } from 'react';
import './ui.css';

function Card({ city }) {
  const [clicks, setClicks] = useState(0);
  const { values } = useStreamContext();
  return (
    <button type="button" className="rounded-xl p-4" onClick={() => setClicks(clicks + 1)}>
      {`${city}: sunny, ${clicks} clicks, ${values.ui.length} message`}
    </button>
  );
}

export default { card: Card };
