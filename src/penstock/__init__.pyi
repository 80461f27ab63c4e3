"""The types of what `penstock` offers; at run time these names are imported when they are first used."""

from penstock.api.async_connection import AsyncConnection as AsyncConnection
from penstock.api.async_connection import connect_async as connect_async
from penstock.api.async_queue import AsyncQueue as AsyncQueue
from penstock.api.async_subscription import AsyncExactlyOnce as AsyncExactlyOnce
from penstock.api.async_subscription import AsyncSubscription as AsyncSubscription
from penstock.api.async_transaction import AsyncTransaction as AsyncTransaction
from penstock.api.async_work import AsyncWork as AsyncWork
from penstock.api.connection import Connection as Connection
from penstock.api.connection import connect as connect
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
from penstock.api.handled import HandledStore as HandledStore
from penstock.api.handled import SqliteHandled as SqliteHandled
from penstock.api.job import AsyncJob as AsyncJob
from penstock.api.job import Job as Job
from penstock.api.job import OutgoingJob as OutgoingJob
from penstock.api.job import QueueCounts as QueueCounts
from penstock.api.job import SendFailed as SendFailed
from penstock.api.job import SentJob as SentJob
from penstock.api.message import Message as Message
from penstock.api.message import Outgoing as Outgoing
from penstock.api.message import Published as Published
from penstock.api.queue import Queue as Queue
from penstock.api.settings import Delivery as Delivery
from penstock.api.subscription import ExactlyOnce as ExactlyOnce
from penstock.api.subscription import Subscription as Subscription
from penstock.api.transaction import Transaction as Transaction
from penstock.api.work import Work as Work
from penstock.foundation.errors import PenstockError as PenstockError

__version__: str
