"""The types of what `penstock` offers; at run time these names are imported when they are first used."""

from penstock.api.aio.connection import AsyncConnection as AsyncConnection
from penstock.api.aio.connection import connect_async as connect_async
from penstock.api.aio.queue import AsyncQueue as AsyncQueue
from penstock.api.aio.subscription import AsyncExactlyOnce as AsyncExactlyOnce
from penstock.api.aio.subscription import AsyncSubscription as AsyncSubscription
from penstock.api.aio.transaction import AsyncTransaction as AsyncTransaction
from penstock.api.aio.work import AsyncWork as AsyncWork
from penstock.api.core.handled import HandledStore as HandledStore
from penstock.api.core.handled import SqliteHandled as SqliteHandled
from penstock.api.core.job import AsyncJob as AsyncJob
from penstock.api.core.job import Job as Job
from penstock.api.core.job import OutgoingJob as OutgoingJob
from penstock.api.core.job import QueueCounts as QueueCounts
from penstock.api.core.job import SendFailed as SendFailed
from penstock.api.core.job import SentJob as SentJob
from penstock.api.core.message import Message as Message
from penstock.api.core.message import Outgoing as Outgoing
from penstock.api.core.message import Published as Published
from penstock.api.core.settings import Delivery as Delivery
from penstock.api.errors import ApiError as ApiError
from penstock.api.errors import Busy as Busy
from penstock.api.errors import Closed as Closed
from penstock.api.errors import Fenced as Fenced
from penstock.api.errors import InvalidArgument as InvalidArgument
from penstock.api.errors import InvalidValue as InvalidValue
from penstock.api.errors import JobLost as JobLost
from penstock.api.errors import NotAllowed as NotAllowed
from penstock.api.errors import NotConnected as NotConnected
from penstock.api.errors import PublishFailed as PublishFailed
from penstock.api.errors import QueueFailed as QueueFailed
from penstock.api.errors import SubscribeFailed as SubscribeFailed
from penstock.api.errors import TransactionAborted as TransactionAborted
from penstock.api.errors import UnknownQueue as UnknownQueue
from penstock.api.errors import UnknownTopic as UnknownTopic
from penstock.api.sync.connection import Connection as Connection
from penstock.api.sync.connection import connect as connect
from penstock.api.sync.queue import Queue as Queue
from penstock.api.sync.subscription import ExactlyOnce as ExactlyOnce
from penstock.api.sync.subscription import Subscription as Subscription
from penstock.api.sync.transaction import Transaction as Transaction
from penstock.api.sync.work import Work as Work
from penstock.foundation.errors import PenstockError as PenstockError

__version__: str
